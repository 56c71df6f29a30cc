"""`python -m bench.idle [--check] [--json]`: thousands of idle tunnels on one replica, and a chat among them.

The replica holds tunnels of two processes of many workers each; nothing passes through them but pings. What they add to
each side is read once they all stand; then streams are opened through some of them, and chats are asked of that replica.
"""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Final

from bench.command import Bench, Plan
from bench.floors import OF_IDLE_TUNNELS
from bench.measures import Step

if TYPE_CHECKING:
    from bench.command import Options
    from bench.measures import Measures
    from bench.stage import Stage

ROWS: Final = ("tunnels",)
CROWDS: Final = 2


def plan(stage: Stage, measures: Measures, options: Options) -> Plan:
    """Everything in one step, carrier by carrier."""
    key = stage.mint_key()
    steps = [
        Step(
            subject=stand.name,
            row="tunnels",
            run=functools.partial(measures.idle, stand, crowds=CROWDS, key=key),
        )
        for stand in options.stands
    ]
    return Plan(steps=steps, settled=stage.require_carriers)


BENCH: Final = Bench(
    name="idle",
    summary="Thousands of idle tunnels on one replica: what each costs, and whether a chat is still answered.",
    rows=ROWS,
    plan=plan,
    figures=OF_IDLE_TUNNELS,
    rounds=1,
    crowds=CROWDS,
)


if __name__ == "__main__":
    sys.exit(BENCH.main())
