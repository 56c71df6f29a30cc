"""The journal on disk: one file a writing process, each event flushed as one append, so that `kill -9` loses nothing."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

from blackstart.core.journal import Event, JournalError, Kind, clip, decode, encode, merge
from blackstart.core.names import safe_name
from blackstart.core.redact import redact_value
from blackstart.record.appending import Appending

if TYPE_CHECKING:
    from pathlib import Path

    from blackstart.record.folder import Run

JOURNAL_DIR = "journal"


class Journal(Appending):
    """One writer's pen. `writer` says who (`pytest`, `gw0`, `cli`, `guardian`); the file name adds the pid."""

    def __init__(self, run: Run, *, writer: str) -> None:
        folder = run.dir / JOURNAL_DIR
        folder.mkdir(exist_ok=True)
        self.writer = writer
        self._seq = 0
        self.lost: OSError | None = None
        """Why the first event that `note` could not write is missing."""
        super().__init__(folder / f"{safe_name(writer)}.{os.getpid()}.jsonl", mode=0o644)

    def write(
        self,
        kind: Kind | str,
        /,
        *,
        spec: str | None = None,
        node: str | None = None,
        incarnation: int | None = None,
        **data: Any,
    ) -> Event:
        """Append one event, redacted and clipped; it is on file when this returns."""
        with self._pen:  # else a later number could be written first
            self._open()
            self._seq += 1
            event = Event(
                seq=self._seq,
                boot_ns=time.clock_gettime_ns(time.CLOCK_BOOTTIME),
                wall=time.time(),
                kind=Kind(kind),
                spec=spec,
                node=node,
                incarnation=incarnation,
                data=redact_value(clip(data)),
            )
            self._append(encode(event))
        return event

    def note(self, kind: Kind | str, /, **told: Any) -> None:
        """The same for what must happen whether or not it can be told: a failure is kept in `lost` and not raised."""
        try:
            self.write(kind, **told)
        except OSError as wrong:
            self.lost = self.lost or wrong


def read_journal(run_dir: Path) -> list[Event]:
    """Every event of the run in one order. A torn last line is left out; any other unreadable line is told as an event."""
    told: list[tuple[str, Event]] = []
    folder = run_dir / JOURNAL_DIR
    for path in sorted(folder.glob("*.jsonl")):
        last_ns = 0
        *whole, _torn = path.read_bytes().split(b"\n")
        for number, line in enumerate(whole, 1):
            if not line:
                continue
            try:
                event = decode(line)
            except JournalError as wrong:
                event = Event(
                    seq=number,
                    boot_ns=last_ns,
                    wall=0.0,
                    kind=Kind.HARNESS_FAILURE,
                    data={"file": path.name, "line": number, "text": str(wrong)},
                )
            last_ns = event.boot_ns
            told.append((path.name, event))
    return merge(told)
