"""The stated bound of a session's memory, measured from outside the process that holds it."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from blackstart.cluster.waiting import eventually
from inference_fleet.settings import Timings
from inference_fleet.tunnel import Limits
from inference_fleet.tunnel.yamux.wire import DATA, INITIAL_WINDOW, SYN, WINDOW, pack

if TYPE_CHECKING:
    from collections.abc import Iterator

SESSIONS, STREAMS = 2, 1000
PER_STREAM = 4096
WITHIN_S = Timings.production().start_s
LIMITS = Limits()
BOUND = SESSIONS * (STREAMS * (INITIAL_WINDOW + PER_STREAM) + LIMITS.growth_pool)
"""As `Limits` and the protocol's page state it; nothing of `session_backlog` is used, for nothing is written."""


def _whole_window(stream: int) -> bytes:
    """Open a stream and use up all its credit."""
    frame = LIMITS.frame_bytes
    data = [pack(DATA, 0, stream, frame), bytes(frame)] * (INITIAL_WINDOW // frame)
    return b"".join([pack(WINDOW, SYN, stream, 0), *data])


class Holder:
    """What the other process says of itself."""

    def __init__(self, child: subprocess.Popen[str]) -> None:
        self._child = child
        assert child.stdout is not None
        self.port = int(child.stdout.readline())

    def ask(self) -> tuple[int, int, int]:
        """Streams, those of them whose peer has no credit left, and resident bytes."""
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._child.stdin.write("?\n")
        self._child.stdin.flush()
        streams, full, resident = map(int, self._child.stdout.readline().split())
        return streams, full, resident


@pytest.fixture
def holder() -> Iterator[Holder]:
    command = [sys.executable, str(Path(__file__).parent / "holder.py")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        try:
            yield Holder(child)
        finally:
            child.kill()


@pytest.mark.holds("T-12")
def test_two_thousand_streams_that_nobody_reads_stay_inside_the_stated_bound(holder: Holder) -> None:
    _, _, before = holder.ask()
    peers = [socket.create_connection(("127.0.0.1", holder.port), timeout=WITHIN_S) for _ in range(SESSIONS)]
    try:
        for stream in range(1, 2 * STREAMS, 2):
            window = _whole_window(stream)
            for peer in peers:
                peer.sendall(window)
        eventually(lambda: holder.ask()[:2], (SESSIONS * STREAMS, SESSIONS * STREAMS), within=WITHIN_S)
        _, _, resident = holder.ask()
    finally:
        for peer in peers:
            peer.close()
    held = SESSIONS * STREAMS * INITIAL_WINDOW
    assert resident - before >= held, "the control: what was sent does not lie there"
    assert resident - before <= BOUND, f"{(resident - before) / held:.2f} times what was sent"
