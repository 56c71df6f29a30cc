"""The highest tunnel epoch this node has seen: shown with each dial, so a restored database cannot fall behind it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from inference_fleet.tunnel.worker import SeenEpoch
from inference_fleet.worker.credential import write_durably

if TYPE_CHECKING:
    from pathlib import Path

_log = logging.getLogger("blackstart.worker")
_HIGHEST = 2**63 - 1
_DIGITS = 19


class EpochFile:
    """Where a node's highest seen epoch outlives its worker, beside the credential.

    The file may be lost without harm (the database's own sequence is ahead of it nearly always), so a broken one
    is said and counts as none.
    """

    def __init__(self, credential_file: Path) -> None:
        self.path = credential_file.with_name(f"{credential_file.name}.epoch")

    def load(self) -> SeenEpoch:
        """What earlier workers on this node saw."""
        try:
            text = self.path.read_text(encoding="ascii").strip()
        except FileNotFoundError:
            return SeenEpoch()
        except (OSError, UnicodeDecodeError) as error:
            _log.warning("%s cannot be read (%s); counting as no epoch seen", self.path, error)
            return SeenEpoch()
        if not text.isdigit() or len(text) > _DIGITS or int(text) > _HIGHEST:
            _log.warning("%s holds no epoch; counting as none seen", self.path)
            return SeenEpoch()
        return SeenEpoch(value=int(text))

    def keep(self, seen: SeenEpoch) -> None:
        """Write it down for good (blocking)."""
        write_durably(self.path, f"{seen.value}\n")
