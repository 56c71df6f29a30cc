"""Buffers that come and go are not given back to the kernel and asked for anew; what is large or too much still is.

Seen from a process of its own, for what is set is set for good.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

from inference_fleet.settings.allocator import KEPT_BYTES, MAPPED_BYTES

pytestmark = pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc", reason="libc=other: the setting is one of glibc alone"
)

PLAIN_PAGES = """
import ctypes
ctypes.CDLL(None).prctl(41, 1, 0, 0, 0)
"""
"""`PR_SET_THP_DISABLE`: where the kernel maps 2 MiB at a time, faults say little."""
FAULTS = """
import resource
{start}
def three():
    first = bytes(source); second = bytes(source); third = bytes(source)
source = memoryview(bytearray(256 * 1024))
three()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(100):
    three()
print((resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) // 100)
"""
RESIDENT = """
import resource
{start}
def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()
before = resident()
held = [bytearray({size}) for _ in range({count})]
most = resident()
held.clear()
print(most - before, resident() - before)
"""
KEEP = "from inference_fleet.settings.allocator import keep_freed; keep_freed()"
SLACK_BYTES = 4 * 1024 * 1024


def told(script: str, **values: object) -> list[int]:
    """The numbers that a fresh process prints."""
    done = subprocess.run(
        [sys.executable, "-c", PLAIN_PAGES + script.format(**values)],
        env={name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_"))},
        capture_output=True,
        text=True,
        check=True,
    )
    return [int(word) for word in done.stdout.split()]


@pytest.mark.parametrize(
    "start", [KEEP, "from inference_fleet.settings.loading import kept_for_life\nwith kept_for_life(): pass"]
)
def test_buffers_that_come_and_go_cost_no_new_pages(start: str) -> None:
    (without,) = told(FAULTS, start="")
    assert without > 50, "the control: this C library gives nothing back, and nothing is shown here"
    (faults,) = told(FAULTS, start=start)
    assert faults < 5, f"{faults} pages are mapped anew for three buffers, {without} without the setting"


@pytest.mark.parametrize(
    ("size", "count", "kept"),
    [(256 * 1024, 512, KEPT_BYTES), (MAPPED_BYTES, 128, 0)],
    ids=["much in small blocks", "large blocks"],
)
def test_no_more_is_kept_than_is_stated(size: int, count: int, kept: int) -> None:
    most, left = told(RESIDENT, start=KEEP, size=size, count=count)
    assert most > size * count * 0.9, "the control: it was there"
    assert left <= kept + SLACK_BYTES, f"{left} bytes of {most} are kept; {kept} are stated"
