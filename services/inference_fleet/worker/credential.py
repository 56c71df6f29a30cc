"""The worker's own secret: made here, on disk before anybody hears of it, never replaced behind its owner's back.

Registration ties the node's name to this secret's hash. Were it registered first and lost before it reached the
disk, the next start could not show it, and the name would be held by nobody.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import secrets
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

_log = logging.getLogger("blackstart.worker")
_SHAPE = re.compile(r"[0-9a-f]{64}")
_BYTES = 32


class CredentialError(ValueError):
    """A credential file that cannot be used; the text names it and what to do."""


@dataclass(frozen=True)
class Credential:
    """The secret, and the hash the frontends know it by."""

    secret: str = field(repr=False)

    @property
    def sha256(self) -> str:
        """What registration tells."""
        return hashlib.sha256(self.secret.encode()).hexdigest()


def load_or_make(path: Path) -> Credential:
    """The credential in a file; a new one, already on disk for good, when there is no such file."""
    try:
        return _load(path)
    except FileNotFoundError:
        return _make(path)


def _load(path: Path) -> Credential:
    try:
        with path.open("rb") as file:
            content = file.read(4096)
            mode = os.fstat(file.fileno()).st_mode
    except FileNotFoundError:
        raise
    except OSError as error:
        raise CredentialError(
            f"BLACKSTART_NODE_CREDENTIAL_FILE={path}: cannot be read ({error.strerror}); "
            "try: give it to the user this worker runs as, or name another file"
        ) from error
    secret = content.decode("ascii", errors="replace").strip()
    if not _SHAPE.fullmatch(secret):
        found = "is empty" if not content.strip() else "does not hold 64 hexadecimal digits"
        raise CredentialError(
            f"BLACKSTART_NODE_CREDENTIAL_FILE={path}: {found}; try: put the node's credential back, or remove the "
            "file to become a new holder of this name once the old one is stale"
        )
    if mode & 0o077:
        _log.warning("%s could be read by other users; closing it to them", path)
        path.chmod(0o600)
    return Credential(secret)


def _make(path: Path) -> Credential:
    credential = Credential(secrets.token_hex(_BYTES))
    _make_folder(path.parent)
    write_durably(path, credential.secret + "\n", exclusive=True)
    return _load(path)  # a worker that started beside us may have been first: then its secret is ours too


def _make_folder(folder: Path) -> None:
    if folder.exists():
        return
    _make_folder(folder.parent)
    folder.mkdir(mode=0o700, exist_ok=True)
    _sync(folder.parent)


def write_durably(path: Path, text: str, *, exclusive: bool = False) -> None:
    """Write a small private file so that it is there whole after a power cut, or not at all.

    `exclusive` leaves a file that is already there as it is.
    """
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # 0600 from its first moment
    draft = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="ascii") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        if exclusive:
            try:
                os.link(draft, path)
            except FileExistsError:
                return
        else:
            draft.replace(path)
        _sync(path.parent)
    finally:
        draft.unlink(missing_ok=True)


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
