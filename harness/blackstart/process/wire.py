"""What a user of a run and its guardian say to each other: one JSON object a packet on an abstract Unix socket."""

from __future__ import annotations

import socket
import struct
from typing import Literal

import msgspec

PACKET_LIMIT = 4096


class Said(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """From a user: `hello` once, `admit` before and after each spawn, `bye` when it has ended its own."""

    op: Literal["hello", "admit", "bye"]
    pid: int = 0
    started: int = 0
    charge: str = ""


class Answer(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """From the guardian."""

    ok: bool
    why: str = ""
    pid: int = 0


SAID = msgspec.json.Decoder(Said)
ANSWER = msgspec.json.Decoder(Answer)


def address(run_id: str) -> bytes:
    """The guardian's address: abstract, so it needs no path and leaves no file; the run id cannot be guessed."""
    return f"\0blackstart-guardian-{run_id}".encode()


def peer(connection: socket.socket) -> tuple[int, int]:
    """The pid and the uid of the other end, by the kernel's word."""
    pid, uid, _gid = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return pid, uid
