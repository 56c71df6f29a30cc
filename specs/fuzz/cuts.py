"""Bytes in pieces: what an end makes of them must not depend on where the network cut them."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


def pieces(data: bytes, cuts: Sequence[int]) -> Iterator[bytes]:
    """`data` cut at these places (taken modulo its length); none of the pieces is empty."""
    if not data:
        return
    edges = sorted({0, len(data), *(cut % len(data) for cut in cuts)})
    for start, end in itertools.pairwise(edges):
        yield data[start:end]


def ways(cuts: Sequence[int], length: int) -> list[Sequence[int]]:
    """Whole, as drawn, and byte by byte."""
    return [(), cuts, range(length)]
