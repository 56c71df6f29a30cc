"""A container engine's double: a socket that answers in an engine's HTTP what a spec told it to."""

from __future__ import annotations

import socket
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class FakeEngine:
    """Answers what it was told for a method and a path, and notes what it was asked."""

    def __init__(self, folder: Path, answers: dict[str, tuple[int, bytes]], *, deaf: int = 0) -> None:
        self.path = folder / "engine.sock"
        self.asked: list[str] = []
        self._answers = answers
        self._deaf = deaf  # so many connections are taken and never answered
        self._unheard: list[socket.socket] = []
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self.path))
        self._listener.listen()
        threading.Thread(target=self._serve, daemon=True).start()

    @property
    def address(self) -> str:
        return f"unix://{self.path}"

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in self._unheard:
            connection.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            if len(self._unheard) < self._deaf:
                self._unheard.append(connection)
                continue
            with connection:
                words = connection.recv(65536).decode().split(" ")
                if len(words) < 2:
                    continue
                asked = f"{words[0]} {words[1].partition('?')[0]}"
                self.asked.append(asked)
                status, body = self._answers.get(asked, (404, b'{"message":"no such thing"}'))
                connection.sendall(
                    b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%s" % (status, len(body), body)
                )


@contextmanager
def fake(folder: Path, answers: dict[str, tuple[int, bytes]], *, deaf: int = 0) -> Iterator[FakeEngine]:
    engine = FakeEngine(folder, answers, deaf=deaf)
    try:
        yield engine
    finally:
        engine.close()
