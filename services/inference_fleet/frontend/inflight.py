"""How many requests this replica is passing to each worker: what spreads load, and what the roster shows."""

from __future__ import annotations

import contextlib
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from inference_fleet.roster.frontend import Candidate


class InFlight:
    """Counts by node; a node without requests costs nothing."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._turn = 0

    @contextlib.contextmanager
    def counted(self, node_id: str) -> Iterator[None]:
        """One request, for as long as it runs."""
        self._counts[node_id] += 1
        try:
            yield
        finally:
            self._counts[node_id] -= 1
            if not self._counts[node_id]:
                del self._counts[node_id]

    def of(self, node_id: str) -> int:
        """Requests running on a node through this replica."""
        return self._counts[node_id]

    def order(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Candidates as they are to be tried: fewest in flight first, equals taking turns."""
        if not candidates:
            return []
        self._turn = (self._turn + 1) % (1 << 30)
        at = self._turn % len(candidates)
        turned = [*candidates[at:], *candidates[:at]]
        return sorted(turned, key=lambda candidate: self._counts[candidate.node_id])
