"""A run that proved nothing must not be green: empty, all skipped, or short of what it was told to require."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

OFF_WORDS = frozenset({"", "0", "false", "f", "no", "n", "off", "none", "disabled", "disable"})
CAPABILITIES = ("browser", "container", "faketime", "go", "netns", "openssl", "strace")


class GateError(ValueError):
    """A setting of the gate that cannot be meant: its text names the thing, the value and the remedy."""


def switched_on(value: str | None) -> bool:
    """A switch: unset and the off words are off; everything else is on, what cannot be read included.

    >>> switched_on("false"), switched_on("ture"), switched_on(None)
    (False, True, False)
    """
    return value is not None and value.strip().lower() not in OFF_WORDS


def required_capabilities(value: str | None) -> tuple[str, ...]:
    """The comma list of `BLACKSTART_REQUIRE`, each name once and known."""
    names = [name.strip() for name in (value or "").split(",") if name.strip()]
    for name in names:
        if name not in CAPABILITIES:
            raise GateError(
                f"BLACKSTART_REQUIRE={name}: not a capability; try: a comma list of {', '.join(CAPABILITIES)}"
            )
    return tuple(dict.fromkeys(names))


@dataclass(frozen=True, kw_only=True)
class Counts:
    """What a run came to, counted in specs that carry a blackstart marker."""

    collected: int
    passed: int = 0
    failed: int = 0
    skipped: int = 0

    @property
    def ran(self) -> int:
        """Specs that reached a verdict of their own."""
        return self.passed + self.failed


def objections(
    counts: Counts, *, ci: bool, required: Collection[str], missing: Mapping[str, str]
) -> list[str]:
    """Why this run may not be green; empty where nothing is said against it.

    `missing` maps each capability that is not here to the reason. Where no blackstart marker was collected
    the run is somebody else's and nothing is said.
    """
    if not counts.collected:
        return []
    against = [
        f"BLACKSTART_REQUIRE names {name}, which is not here: {missing[name]}"
        for name in required
        if name in missing
    ]
    if not ci or counts.ran:
        return against
    if counts.skipped:
        against.append(
            f"CI is set and every one of the {counts.skipped} specs was skipped: nothing was proven;"
            " try: -rs to see the reasons"
        )
    else:
        against.append(
            f"CI is set and none of the {counts.collected} collected specs ran: the selection is empty;"
            " try: without -k, -m or --deselect"
        )
    return against
