"""The tally: every row of the inventory is held by a spec that passed, or says why not yet, or why never.

| a row is | when |
|---|---|
| held | a spec that passed in every phase names it |
| excused | a spec that names it was skipped for a capability this run does not require |
| later | the inventory says under which title it comes |
| never | the inventory says why it is not ours |
| a hole | none of these: the run fails |
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

LATER = ("tunnel", "decisions", "harness", "control-plane", "evidence")
_KEYS = frozenset({"title", "later", "never"})
_LONGEST_TITLE = 120


class InventoryError(ValueError):
    """An inventory that cannot be meant: the text names the row and the remedy."""


@dataclass(frozen=True)
class Row:
    """One thing the product must do, in our words."""

    id: str
    title: str
    later: str = ""
    never: str = ""


@dataclass(frozen=True)
class SpecResult:
    """What one spec came to, with the rows it names and the capabilities it was skipped for."""

    spec: str
    outcome: str
    holds: tuple[str, ...]
    skipped_for: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Tally:
    """The rows by what they are; `holes` and `unknown` are what a run fails for."""

    held: tuple[str, ...]
    excused: Mapping[str, str]
    later: Mapping[str, tuple[str, ...]]
    never: tuple[str, ...]
    holes: tuple[Row, ...]
    unknown: Mapping[str, str]

    @property
    def whole(self) -> bool:
        """Nothing is missing and nothing is named that does not exist."""
        return not self.holes and not self.unknown

    def lines(self) -> list[str]:
        """The tally as it is printed."""
        waiting = ", ".join(f"{title} {len(ids)}" for title, ids in self.later.items())
        later = f"{sum(map(len, self.later.values()))} later ({waiting or 'none'})"
        told = [
            f"{len(self.held)} held, {len(self.excused)} excused, {later}, {len(self.never)} never, {len(self.holes)} holes"
        ]
        told += [f"excused {one}: {reason}" for one, reason in self.excused.items()]
        told += [f"HOLE {row.id}: no spec that passed holds: {row.title}" for row in self.holes]
        told += [
            f"UNKNOWN {one}: held by {spec}, and not in the inventory" for one, spec in self.unknown.items()
        ]
        return told


def read_inventory(text: str) -> dict[str, Row]:
    """The rows of an inventory's TOML: `B-12 = { title = "...", later = "tunnel" }`."""
    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InventoryError(f"inventory: not TOML: {error}; try: B-12 = {{ title = '...' }}") from None
    return {name: _row(name, value) for name, value in raw.items()}


def take_tally(rows: Mapping[str, Row], results: Iterable[SpecResult], *, required: Collection[str]) -> Tally:
    """Every row by what it is. One pass holds a row, also beside a failure, which is red by itself."""
    outcomes: dict[str, list[SpecResult]] = {}
    for result in results:
        for one in result.holds:
            outcomes.setdefault(one, []).append(result)
    held = [one for one in rows if any(result.outcome == "passed" for result in outcomes.get(one, ()))]
    excused: dict[str, str] = {}
    later: dict[str, list[str]] = {}
    never: list[str] = []
    holes: list[Row] = []
    for one, row in rows.items():
        if one in held:
            continue
        excuse = _excuse(outcomes.get(one, ()), required)
        if excuse:
            excused[one] = excuse
        elif row.later:
            later.setdefault(row.later, []).append(one)
        elif row.never:
            never.append(one)
        else:
            holes.append(row)
    return Tally(
        held=tuple(held),
        excused=excused,
        later={title: tuple(ids) for title, ids in later.items()},
        never=tuple(never),
        holes=tuple(holes),
        unknown={one: found[0].spec for one, found in outcomes.items() if one not in rows},
    )


def _excuse(results: Iterable[SpecResult], required: Collection[str]) -> str:
    """Why a row whose specs did not pass is no hole: a skip for a capability nobody required, and no failure beside it."""
    reason = ""
    for result in results:
        if result.outcome != "skipped" or not result.skipped_for or set(result.skipped_for) & set(required):
            return ""
        reason = f"{result.spec} needs {', '.join(result.skipped_for)}"
    return reason


def _row(name: str, value: Any) -> Row:
    if not isinstance(value, dict) or not set(value) <= _KEYS:
        raise InventoryError(
            f"inventory: {name}={value!r}: not a row; try: {{ title = '...', later = '...' }}"
        )
    row = Row(name, **{key: str(part) for key, part in value.items()})
    if not row.title or len(row.title) > _LONGEST_TITLE:
        raise InventoryError(f"inventory: {name}: its title is empty or too long; try: a dozen words")
    if row.later and row.later not in LATER:
        raise InventoryError(f"inventory: {name}: later={row.later}: no such title; try: {', '.join(LATER)}")
    if row.later and row.never:
        raise InventoryError(f"inventory: {name}: both later and never; try: one of them")
    return row
