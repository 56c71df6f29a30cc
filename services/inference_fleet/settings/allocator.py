"""What a process frees it keeps for its next buffers, up to a bound, instead of giving it back to the kernel each time.

Bulk makes and frees two or three buffers of 256 KiB a read. Left to itself glibc gives the top of its heap back as soon
as a few such buffers are free, and what is asked for next is mapped and zeroed anew, page by page: several times the
cost of all that is done with the bytes.
"""

from __future__ import annotations

import ctypes
from typing import Final

KEPT_BYTES: Final = 16 * 1024 * 1024
"""Free memory at the top of a heap (each thread that allocates may have one) that is not given back."""
MAPPED_BYTES: Final = 1024 * 1024
"""Blocks of this size or more are mapped one by one and given back the moment they are freed."""
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of glibc's <malloc.h>


def keep_freed() -> bool:
    """Tell the C library, for the whole process. False where it knows no such setting: then nothing is changed."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:  # musl and others
        return False
    return bool(mallopt(_TRIM_THRESHOLD, KEPT_BYTES) and mallopt(_MMAP_THRESHOLD, MAPPED_BYTES))
