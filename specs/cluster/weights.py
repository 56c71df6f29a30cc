"""A model process that hands out its weights: whole, or none of them, beside a word about itself.

`python weights.py --port N --folder PATH --size BYTES` writes them to a file without a name, which is gone with the
process, and answers `POST /v1/chat/completions`:

| key of the body    | the answer                                         |
|--------------------|----------------------------------------------------|
| `"weights": true`  | the file                                           |
| `"weights": false` | nothing, the same way                              |
| neither            | `{"sent": N}`: bytes of files handed to the kernel |
"""

from __future__ import annotations

import argparse
import json
import os
import random
import socket
import tempfile
import threading
import zlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

BLOCK: Final = 1024 * 1024
_PIECE: Final = 256 * 1024
_SEED: Final = 226


def blocks(size: int) -> Iterator[bytes]:
    """The weights, the same in every process: no two of their blocks are alike."""
    text = random.Random(_SEED).randbytes(BLOCK)  # noqa: S311 - everybody is to know them
    for offset in range(0, size, BLOCK):
        block = offset.to_bytes(8) + text[8:]
        yield block[: size - offset]


def checksum(size: int) -> int:
    """Of the weights."""
    value = 0
    for block in blocks(size):
        value = zlib.crc32(block, value)
    return value


class _Model(ThreadingHTTPServer):
    """Its `sent` grows with every piece the kernel takes."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, port: int, weights: int, size: int) -> None:
        self.weights = weights
        self.size = size
        self.sent = 0
        self.counting = threading.Lock()
        super().__init__(("127.0.0.1", port), _Asked)


class _Asked(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Model

    def setup(self) -> None:
        super().setup()
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def do_GET(self) -> None:
        self._answer(b"{}")

    def do_POST(self) -> None:
        asked: dict[str, Any] = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if "weights" not in asked:
            self._answer(json.dumps({"sent": self.server.sent}).encode())
        elif asked["weights"]:
            self._hand_out(self.server.weights, self.server.size)
        else:
            self._answer(b"", kind="application/octet-stream")

    def _answer(self, body: bytes, *, kind: str = "application/json") -> None:
        self._head(len(body), kind)
        self.wfile.write(body)

    def _hand_out(self, weights: int, size: int) -> None:
        self._head(size, "application/octet-stream")
        at = 0
        while at < size:
            count = os.sendfile(self.connection.fileno(), weights, at, min(size - at, _PIECE))
            at += count
            with self.server.counting:
                self.server.sent += count

    def _head(self, length: int, kind: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(length))
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name it has there
        """Nothing: a line a request is no news."""


def main() -> None:
    """Write the weights, then answer until ended."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--size", type=int, required=True)
    given = parser.parse_args()
    with tempfile.TemporaryFile(dir=given.folder) as file:
        file.writelines(blocks(given.size))
        file.flush()
        _Model(given.port, file.fileno(), given.size).serve_forever()


if __name__ == "__main__":
    main()
