"""One model's processes as one state machine, so that nothing is started twice and a crash loop slows down.

| phase    | start      | answers  | exits   | late     | stop     |
|----------|------------|----------|---------|----------|----------|
| IDLE     | STARTING   |          |         |          | STOPPED  |
| STARTING |            | READY    | WAITING | ENDING   | STOPPING |
| READY    |            |          | WAITING | ENDING   | STOPPING |
| ENDING   |            |          | WAITING |          | STOPPING |
| WAITING  | STARTING   |          |         |          | STOPPED  |
| STOPPING |            |          | STOPPED |          |          |

An empty field is a step that cannot be taken: a second start while a process lives, most of all.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from inference_fleet.settings import Timings


class Phase(StrEnum):
    """Where a model stands; there is a live process in STARTING, READY, ENDING and STOPPING."""

    IDLE = "idle"
    STARTING = "starting"
    READY = "ready"
    ENDING = "ending"
    WAITING = "waiting"
    STOPPING = "stopping"
    STOPPED = "stopped"


class Step(StrEnum):
    """What happened to it."""

    START = "start"
    ANSWERS = "answers"
    EXITS = "exits"
    LATE = "late"
    STOP = "stop"


STEPS: dict[tuple[Phase, Step], Phase] = {
    (Phase.IDLE, Step.START): Phase.STARTING,
    (Phase.IDLE, Step.STOP): Phase.STOPPED,
    (Phase.STARTING, Step.ANSWERS): Phase.READY,
    (Phase.STARTING, Step.EXITS): Phase.WAITING,
    (Phase.STARTING, Step.LATE): Phase.ENDING,
    (Phase.STARTING, Step.STOP): Phase.STOPPING,
    (Phase.READY, Step.EXITS): Phase.WAITING,
    (Phase.READY, Step.LATE): Phase.ENDING,
    (Phase.READY, Step.STOP): Phase.STOPPING,
    (Phase.ENDING, Step.EXITS): Phase.WAITING,
    (Phase.ENDING, Step.STOP): Phase.STOPPING,
    (Phase.WAITING, Step.START): Phase.STARTING,
    (Phase.WAITING, Step.STOP): Phase.STOPPED,
    (Phase.STOPPING, Step.EXITS): Phase.STOPPED,
}

# what the roster is told; no entry: there is no process to tell of
REPORTED = {
    Phase.STARTING: "starting",
    Phase.READY: "ready",
    Phase.ENDING: "failed",
    Phase.WAITING: "failed",
}
SERVING = frozenset({Phase.READY})


class IllegalStep(AssertionError):
    """A step its phase does not allow: a mistake of the supervisor's own."""


def after(phase: Phase, step: Step) -> Phase:
    """The next phase."""
    try:
        return STEPS[phase, step]
    except KeyError:
        raise IllegalStep(f"{step} in phase {phase}") from None


@dataclass(frozen=True)
class Ladder:
    """How often in a row a process did not last, and so how long to wait before the next."""

    rungs: int = 0

    def fallen(self, *, ready_for_s: float, timings: Timings) -> Ladder:
        """After an exit; one that was ready for longer than the longest pause starts again from the bottom."""
        return Ladder(1 if ready_for_s > timings.backend_restart_max_s else self.rungs + 1)

    def pause_s(self, *, timings: Timings, draw: float) -> float:
        """Doubling from `backend_restart_min_s` up to `backend_restart_max_s`, of which `draw` (0 to 1) takes
        away up to half: models that died together do not come back together, and none comes back at once.
        """
        doublings = min(self.rungs - 1, 32)
        longest = min(timings.backend_restart_max_s, timings.backend_restart_min_s * 2.0**doublings)
        return longest * (1 - draw / 2)
