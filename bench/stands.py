"""What is compared: which carrier a tunnel has, and whether TLS is under it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from blackstart.core.commands import BadInput

if TYPE_CHECKING:
    from collections.abc import Sequence

Direction = Literal["down", "up"]
CARRIERS: Final = ("takeover", "asgi")
WIRES: Final = ("plain", "tls")


@dataclass(frozen=True, kw_only=True)
class Stand:
    """One way a tunnel can be carried."""

    carrier: str
    wire: str

    @property
    def name(self) -> str:
        """As in reports: `takeover/plain`."""
        return f"{self.carrier}/{self.wire}"

    @property
    def model(self) -> str:
        """The model that stands behind it."""
        return f"bench-{self.carrier}-{self.wire}"


def stands_of(*, carriers: Sequence[str], wires: Sequence[str]) -> tuple[Stand, ...]:
    """Every combination, in the order given."""
    return tuple(Stand(carrier=carrier, wire=wire) for carrier in carriers for wire in wires)


def chosen(flag: str, text: str, known: Sequence[str]) -> tuple[str, ...]:
    """The words of a comma-separated option, each known and none twice; `all` is every one."""
    words = tuple(known) if text == "all" else tuple(word.strip() for word in text.split(","))
    for word in words:
        if word not in known:
            raise BadInput(flag, word, "unknown", remedy=f"some of {','.join(known)}, or all")
    if len(set(words)) != len(words):
        raise BadInput(flag, text, "names one twice", remedy=f"{flag} all")
    return words


def judged(stands: Sequence[Stand]) -> Stand | None:
    """The stand whose floors are held: what production runs by default, without TLS, which costs what it costs.

    None where no plain stand was asked for.
    """
    plain: list[Stand] = [stand for stand in stands if stand.wire == "plain"]
    return min(plain, key=lambda stand: CARRIERS.index(stand.carrier), default=None)
