"""In which order a round runs its steps: whatever drifts on the machine must not always meet the same row."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence

T = TypeVar("T")


def interleaved(steps: Sequence[T], *, rounds: int) -> tuple[tuple[T, ...], ...]:
    """The steps of each round: all of them, begun one later each time, every second round backwards.

    So no step is always first, and none always follows the same one.
    """
    return tuple(_rotated(steps, number) for number in range(rounds))


def _rotated(steps: Sequence[T], number: int) -> tuple[T, ...]:
    if not steps:
        return ()
    begin = number % len(steps)
    forwards = (*steps[begin:], *steps[:begin])
    return (forwards[0], *forwards[:0:-1]) if number % 2 else forwards
