"""Many examples of one or more targets, within seconds or a number: what crashed, and whether memory stayed flat.

Hypothesis draws in rounds, each from a seed of its own that comes of the campaign's. A case is plain data: one that
fails, made as small as it gets, is written as the Python literal it is and can be played again.
"""

from __future__ import annotations

import ast
import gc
import hashlib
import random
import signal
import statistics
import time
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import psutil
from hypothesis import HealthCheck, Phase, given, seed, settings
from specs.fuzz import frames, handshake, websocket

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from hypothesis.strategies import SearchStrategy

TARGETS: Final = MappingProxyType({"frames": frames, "websocket": websocket, "handshake": handshake})
EXAMPLE_CPU_S: Final = 30.0
"""Processor time of one example; what takes longer hangs. The slowest takes some hundredths."""
_GROWTH_SHARE: Final = 1.10
_GROWTH_BYTES: Final = 8 * 1024 * 1024
_ROUND: Final = 250
_QUOTED: Final = 40


class Hangs(AssertionError):
    """An example that does not end."""


@dataclass
class Crash:
    """A case that broke an invariant, and how."""

    target: str
    case: dict[str, Any]
    error: BaseException

    def save(self, place: Path) -> Path:
        """Write the case where it can be played again."""
        text = f"# {self.target}: {type(self.error).__name__}\n({self.target!r}, {self.case!r})\n"
        place.mkdir(parents=True, exist_ok=True)
        path = place / f"{self.target}-{hashlib.sha256(text.encode()).hexdigest()[:12]}.case"
        path.write_text(text)
        return path


@dataclass
class Outcome:
    """What a campaign saw."""

    seed: int
    examples: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    cpu_s: float = 0.0
    memory: list[int] = field(default_factory=list)
    crash: Crash | None = None

    @property
    def quarters(self) -> tuple[float, float]:
        """Resident bytes: medians of the first and of the last quarter of the rounds."""
        count = max(1, len(self.memory) // 4)
        return statistics.median(self.memory[:count]), statistics.median(self.memory[-count:])

    @property
    def flat(self) -> bool:
        """Whether the process keeps nothing of the examples."""
        first, last = self.quarters
        return last <= first * _GROWTH_SHARE + _GROWTH_BYTES

    @property
    def passed(self) -> bool:
        """No crash, no hang, memory flat."""
        return self.crash is None and self.flat


def campaign(
    targets: Sequence[str],
    *,
    number: int,
    seconds: float | None = None,
    rounds: int | None = None,
    examples: int = _ROUND,
) -> Outcome:
    """Play rounds of each target in turn until the time is over, or so many rounds; stops at the first crash."""
    outcome = Outcome(number, dict.fromkeys(targets, 0))
    draw = random.Random(number)  # noqa: S311  # a seed that can be named again, nothing secret
    for target in targets:  # what is imported and kept once is kept before anything is measured
        if (crash := _round(target, draw.getrandbits(32), examples, outcome)) is not None:
            outcome.crash = crash
            break
    began, cpu = time.monotonic(), time.process_time()
    for target in () if outcome.crash else _turns(targets, rounds):
        if seconds is not None and time.monotonic() - began >= seconds:
            break
        outcome.crash = _round(target, draw.getrandbits(32), examples, outcome)
        gc.collect()
        outcome.memory.append(psutil.Process().memory_info().rss)
        if outcome.crash is not None:
            break
    outcome.seconds, outcome.cpu_s = time.monotonic() - began, time.process_time() - cpu
    if not outcome.memory:
        outcome.memory.append(psutil.Process().memory_info().rss)
    return outcome


def replay(path: Path) -> Crash | None:
    """Play the case of a file; how it breaks, or None when it no longer does. `ValueError` for a file that is none."""
    match ast.literal_eval(path.read_text()):
        case (str(target), dict(case)) if target in TARGETS:
            pass
        case other:
            raise ValueError(f"it holds {str(other)[:_QUOTED]!r}, which is no case of {', '.join(TARGETS)}")
    try:
        _bounded(TARGETS[target].play, case)
    except Exception as error:  # noqa: BLE001  # whatever an invariant or the product raises is the answer
        return Crash(target, case, error)
    return None


def _turns(targets: Sequence[str], rounds: int | None) -> Iterator[str]:
    played = 0
    while rounds is None or played < rounds:
        yield from targets
        played += 1


def _round(target: str, number: int, examples: int, outcome: Outcome) -> Crash | None:
    strategy: SearchStrategy[dict[str, Any]] = TARGETS[target].STRATEGY
    last: list[dict[str, Any]] = []

    @seed(number)
    @settings(
        max_examples=examples,
        database=None,
        deadline=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
        print_blob=False,
    )
    @given(strategy)
    def one(case: dict[str, Any]) -> None:
        last[:] = [case]
        outcome.examples[target] += 1
        _bounded(TARGETS[target].play, case)

    try:
        one()
    except Exception as error:  # noqa: BLE001  # whatever an invariant or the product raises is a crash
        return Crash(target, last[0], error)
    return None


def _bounded(play: Callable[[dict[str, Any]], None], case: dict[str, Any]) -> None:
    """Play, within the processor time an example may take."""

    def over(*_: object) -> None:
        raise Hangs(f"an example took more than {EXAMPLE_CPU_S:g} s of processor time")

    before = signal.signal(signal.SIGVTALRM, over)
    signal.setitimer(signal.ITIMER_VIRTUAL, EXAMPLE_CPU_S)
    try:
        play(case)
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
