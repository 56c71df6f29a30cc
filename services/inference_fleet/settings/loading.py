"""How a process of the fleet uses memory for its life, settled at its start.

What it loads then the garbage collector looks at neither then nor later: a quarter of what a replica's imports cost is
the collector, called again and again by what it can never free. What it frees later it keeps for its next buffers.
"""

from __future__ import annotations

import gc
from contextlib import contextmanager
from typing import TYPE_CHECKING

from inference_fleet.settings.allocator import keep_freed

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def kept_for_life() -> Iterator[None]:
    """For the imports of a process's entry point: inside, nothing is collected; what is there at the end never will be."""
    keep_freed()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
