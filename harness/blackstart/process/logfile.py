"""A process's log is read from a mark on, and a wait for a line also watches the process that should write it."""

from __future__ import annotations

import os
import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from blackstart.core.redact import redact
from blackstart.process.errors import LogTimeout, ProcessDied

if TYPE_CHECKING:
    from pathlib import Path

_LOOK_EVERY_S = 0.02
_CHUNK = 1024 * 1024
_LONGEST_LINE = 64 * 1024
_TAIL_BYTES = 64 * 1024
TAIL_LINES = 20


class Watched(Protocol):
    """What a wait can watch: a `Handle`, a node."""

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        ...

    def describe_death(self) -> str:
        """How it ended."""
        ...


class Waitable(Watched, Protocol):
    """A watched process whose end wakes the one who waits."""

    def pause_until_end(self, within: float) -> None:
        """Return at its end, or after `within` seconds."""
        ...


@dataclass(frozen=True)
class Mark:
    """A place in one log file, in bytes from its beginning."""

    path: Path
    offset: int


class LogFile:
    """The log of one incarnation: stdout and stderr from the first byte, and the harness's own notes between them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._watch: Watched | None = None

    def __repr__(self) -> str:
        return f"<LogFile {self.path}>"

    def watched_by(self, watch: Watched) -> None:
        """Whose end ends a wait, unless the wait names another."""
        self._watch = watch

    def mark(self) -> Mark:
        """The end of the log as it is now; pass it as `after`."""
        try:
            return Mark(self.path, self.path.stat().st_size)
        except FileNotFoundError:
            return Mark(self.path, 0)

    def note(self, text: str) -> None:
        """Write a line of the harness's own into the log (a spec begins, a fault is injected)."""
        line = f"--- blackstart: {' '.join(text.split())}\n".encode(errors="backslashreplace")
        file = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            size = os.fstat(file).st_size
            if size and os.pread(file, 1, size - 1) != b"\n":
                line = b"\n" + line
            os.write(file, line)
        finally:
            os.close(file)

    def text(self, *, after: Mark | None = None) -> str:
        """All that was written after the mark."""
        return self._read(self._offset(after)).decode(errors="replace")

    def tail(self, lines: int = TAIL_LINES) -> str:
        """The last lines, redacted; an empty text for an empty or missing log."""
        try:
            size = self.path.stat().st_size
        except FileNotFoundError:
            return ""
        raw = self._read(max(0, size - _TAIL_BYTES))
        return redact("\n".join(raw.decode(errors="replace").splitlines()[-lines:]))

    def wait_for(
        self,
        pattern: str | re.Pattern[str],
        *,
        within: float,
        after: Mark | None = None,
        watch: Watched | None = None,
    ) -> re.Match[str]:
        """The first line after the mark that the pattern finds; `.string` is the whole line.

        Raises:
            ProcessDied: the watched process ended, and what it wrote up to its end has no such line.
            LogTimeout: no such line within so many seconds.
        """
        wanted = re.compile(pattern)
        watch = watch or self._watch
        offset = self._offset(after)
        deadline = time.monotonic() + within
        seen = _Lines(wanted)
        while True:
            alive = watch is None or watch.alive  # asked before reading: the last lines come before the end
            before = offset
            while chunk := self._read(offset, _CHUNK):
                offset += len(chunk)
                if found := seen.feed(chunk):
                    return found
            if (not alive or offset == before) and (found := seen.unfinished()):
                return found
            if watch is not None and not alive:
                raise ProcessDied(
                    f"{self.path.name}: ended before a line matched {wanted.pattern!r}"
                    f" ({seen.count} lines read)\n{watch.describe_death()}"
                )
            remaining_s = deadline - time.monotonic()
            if remaining_s <= 0:
                raise LogTimeout(
                    f"{self.path}: no line matched {wanted.pattern!r} within {within:g} s ({seen.count} lines read);"
                    " try: whether the program buffers its output when it is no terminal\n"
                    f"{self.tail() or '(the log is empty)'}"
                )
            _pause(watch, min(_LOOK_EVERY_S, remaining_s))

    def _offset(self, after: Mark | None) -> int:
        if after is None:
            return 0
        if after.path != self.path:
            raise ValueError(
                f"{self.path}: the mark is of {after.path}; try: a mark of this incarnation's log"
            )
        return after.offset

    def _read(self, offset: int, limit: int = -1) -> bytes:
        try:
            with self.path.open("rb") as file:
                file.seek(offset)
                return file.read(limit)
        except FileNotFoundError:
            return b""


class _Lines:
    """Lines put together from chunks that end anywhere; the unfinished last one counts once nothing follows it."""

    def __init__(self, wanted: re.Pattern[str]) -> None:
        self.count = 0
        self._wanted = wanted
        self._rest = b""

    def feed(self, chunk: bytes) -> re.Match[str] | None:
        *whole, self._rest = (self._rest + chunk).split(b"\n")
        for line in whole:
            self.count += 1
            if found := self._wanted.search(line.decode(errors="replace")):
                return found
        self._rest = self._rest[-_LONGEST_LINE:]
        return None

    def unfinished(self) -> re.Match[str] | None:
        return self._wanted.search(self._rest.decode(errors="replace")) if self._rest else None


def _pause(watch: Watched | None, seconds: float) -> None:
    pause = getattr(watch, "pause_until_end", None)
    if callable(pause):
        pause(seconds)
    else:
        time.sleep(seconds)
