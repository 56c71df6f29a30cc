"""The highest tunnel epoch this node has seen: shown with each dial, so a restored database cannot fall behind it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from inference_fleet.worker.credential import write_durably

if TYPE_CHECKING:
    from pathlib import Path

_log = logging.getLogger("blackstart.worker")
_HIGHEST = 2**63 - 1


class SeenEpoch:
    """The highest epoch seen, in memory and in a file beside the credential.

    The file may be lost without harm (the database's own sequence is ahead of it nearly always), so a broken one
    is said and counts as none.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.value = self._read()

    def see(self, epoch: int) -> bool:
        """Remember an epoch if it is the highest so far; whether it was."""
        if epoch <= self.value:
            return False
        self.value = epoch
        return True

    def keep(self) -> None:
        """Write the value to disk (blocking)."""
        write_durably(self._path, f"{self.value}\n")

    def _read(self) -> int:
        try:
            text = self._path.read_text(encoding="ascii").strip()
        except FileNotFoundError:
            return 0
        except (OSError, UnicodeDecodeError) as error:
            _log.warning("%s cannot be read (%s); counting as no epoch seen", self._path, error)
            return 0
        if not text.isdigit() or int(text[:20]) > _HIGHEST:
            _log.warning("%s holds no epoch; counting as none seen", self._path)
            return 0
        return int(text)


def file_beside(credential_file: Path) -> Path:
    """Where a node's highest seen epoch lies."""
    return credential_file.with_name(f"{credential_file.name}.epoch")
