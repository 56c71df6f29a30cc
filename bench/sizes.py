"""How much of everything one round does: the sizes of the bench, and small ones for a quick look."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_MIB: Final = 1024 * 1024
_WHOLE_MIB: Final = 64
"""From here on a run is a measurement; below it everything else is made small as well."""


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """One round's counts.

    | field       | of what                                                                          |
    |-------------|----------------------------------------------------------------------------------|
    | `bulk`      | bytes of one clocked transfer                                                    |
    | `hashed`    | bytes of the transfer before it, whose every byte is hashed at both ends         |
    | `probes`    | small requests that give the idle median                                         |
    | `streams`   | new streams of one measurement, `at_once` at a time                              |
    | `tunnels`   | idle tunnels that one round adds                                                 |
    | `held_each` | idle streams that one round adds to each of those tunnels                        |
    | `idle_tunnels` | idle tunnels on one replica (`bench.idle`)                                    |
    """

    bulk: int
    hashed: int
    probes: int
    streams: int
    at_once: int
    tunnels: int
    held_each: int
    idle_tunnels: int

    def __str__(self) -> str:
        """For the head of a report."""
        return (
            f"{self.bulk / _MIB:g} MiB a transfer, {self.hashed / _MIB:g} MiB hashed before it; {self.probes} idle "
            f"probes; {self.streams} new streams, {self.at_once} at once; {self.tunnels} idle tunnels with "
            f"{self.held_each} idle streams each"
        )


def sizes_of(size_mib: int) -> Sizes:
    """The sizes that go with transfers of so many MiB."""
    whole = size_mib >= _WHOLE_MIB
    return Sizes(
        bulk=size_mib * _MIB,
        hashed=min(size_mib, 16) * _MIB,
        probes=200 if whole else 50,
        streams=1500 if whole else 200,
        at_once=16,
        tunnels=100 if whole else 20,
        held_each=10,
        idle_tunnels=5000 if whole else 100,
    )
