"""The test vectors of `docs/protocol.md`, and a stream that is nothing but the bytes of one."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import pytest

if TYPE_CHECKING:
    from inference_fleet.settings import Deadline
    from inference_fleet.tunnel import Stream

DOCS: Final = Path(__file__).parents[3] / "docs"
VECTORS: Final[dict[str, Any]] = json.loads((DOCS / "protocol-vectors.json").read_text())


def vectors(section: str, *, only: str = "") -> pytest.MarkDecorator:
    """Once for each vector of a section (with `only`: that has this mark), named as the page's reader finds it."""
    rows = [row for row in VECTORS[section] if not only or row.get(only)]
    return pytest.mark.parametrize("vector", rows, ids=[row["name"] for row in rows])


class ScriptedStream:
    """Says the bytes it was given, then nothing, and keeps what it is told."""

    id = 2

    def __init__(self, said: bytes = b"") -> None:
        self._said = said
        self.told = bytearray()
        self.closed = False

    @property
    def as_stream(self) -> Stream:
        """For code that reads and writes and does no more."""
        return cast("Stream", self)

    async def read_exactly(self, length: int, *, deadline: Deadline) -> bytes:
        del deadline
        if len(self._said) < length:
            raise asyncio.IncompleteReadError(self._said, length)
        taken, self._said = self._said[:length], self._said[length:]
        return taken

    def accept(self) -> None: ...

    def write(self, data: bytes) -> None:
        self.told += data

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True


def code_of(told: bytes) -> str:
    """The code of the one refusal that was written, its length checked."""
    assert int.from_bytes(told[:4], "big") == len(told) - 4, "the reply's length is not its own"
    reply = json.loads(told[4:])
    assert reply["ok"] is False
    return str(reply["code"])
