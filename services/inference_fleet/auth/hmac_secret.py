"""The secret that keys session and API key rows: configured, or made once in the data folder and kept."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import secrets
import tempfile
from pathlib import Path

from inference_fleet.settings import SettingsError

FILE_NAME = ".hmac_secret"
_BYTES = 32


def load_hmac_secret(configured: str, data_dir: Path) -> bytes:
    """The configured secret, else the one in `data_dir/.hmac_secret`, which is made at the first start.

    Replicas that are to honour each other's sessions need the same one: pin `BLACKSTART_AUTH_HMAC_SECRET`,
    since a secret made here belongs to this data folder alone. Two processes that start at once agree on
    one file: it is written aside, flushed to disk, then linked into place, and the loser reads the winner's.
    """
    if configured:
        return configured.encode()
    path = data_dir / FILE_NAME
    try:
        data_dir.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            _make(path)
        secret = path.read_bytes()
    except OSError as error:
        raise SettingsError(
            "BLACKSTART_DATA_DIR", data_dir, f"a folder this process can write ({error})"
        ) from None
    if len(secret) < _BYTES:
        raise SettingsError(
            "BLACKSTART_DATA_DIR",
            data_dir,
            f"a folder whose {FILE_NAME} holds {_BYTES} bytes or more; delete that file to make a new one "
            "(every session and API key of this replica ends with it)",
        )
    return secret


def keyed_hash(secret: bytes, token: str) -> str:
    """What is stored instead of a token: a copy of the table gives nobody a session."""
    return hmac.new(secret, token.encode(), hashlib.sha256).hexdigest()


def _make(path: Path) -> None:
    descriptor, aside = tempfile.mkstemp(dir=path.parent, prefix=FILE_NAME)  # mode 0600 by contract
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(secrets.token_bytes(_BYTES))
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileExistsError):
            os.link(aside, path)
    finally:
        Path(aside).unlink()
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
