"""Leak sentinels: what exists before a spec and after it must be the same, or the guilty spec fails by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Inventory = Mapping[Any, Any]
"""What is there: an identity that is not reused while it lives, with the words (or the figure) that tell it."""


def appeared(before: Inventory, after: Inventory) -> list[str]:
    """The plain comparison: whatever is there now and was not before."""
    return [str(text) for identity, text in after.items() if identity not in before]


@dataclass(frozen=True)
class Sentinel:
    """One kind of thing that must not be left behind: `snapshot` lists what is there, `compare` names the leaks."""

    name: str
    snapshot: Callable[[], Inventory]
    compare: Callable[[Inventory, Inventory], Sequence[str]] = appeared


@dataclass(frozen=True)
class Leak:
    """Something that appeared during a spec and was still there after it."""

    sentinel: str
    text: str

    def __str__(self) -> str:
        """`descriptors: 17 -> /tmp/x`."""
        return f"{self.sentinel}: {self.text}"


@dataclass
class Baseline:
    """What was there before, per sentinel. What a wider scope brings meanwhile is adopted, not leaked."""

    sentinels: Sequence[Sentinel]
    _before: dict[str, dict[Any, Any]] = field(default_factory=dict)

    def take(self) -> None:
        """The state before a spec."""
        self._before = self.state()

    def state(self) -> dict[str, dict[Any, Any]]:
        """The state now; hand it to `adopt` later."""
        return {sentinel.name: dict(sentinel.snapshot()) for sentinel in self.sentinels}

    def adopt(self, since: Mapping[str, Inventory]) -> None:
        """What appeared after `since` was taken belongs to a wider scope than the spec."""
        for name, now in self.state().items():
            known = self._before.setdefault(name, {})
            earlier = since.get(name, {})
            known.update({identity: text for identity, text in now.items() if identity not in earlier})

    def leaks(self) -> list[Leak]:
        """What the comparisons object to now."""
        return [
            Leak(sentinel.name, text)
            for sentinel in self.sentinels
            for text in sentinel.compare(self._before.get(sentinel.name, {}), dict(sentinel.snapshot()))
        ]
