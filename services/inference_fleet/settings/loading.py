"""What a process loads at its start it keeps for its life: the garbage collector looks at none of it, then or later.

A quarter of what a replica's imports cost is the collector, called again and again by what it can never free.
"""

from __future__ import annotations

import gc
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def kept_for_life() -> Iterator[None]:
    """For the imports of a process's entry point: inside, nothing is collected; what is there at the end never will be."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
