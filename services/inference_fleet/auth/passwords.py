"""Passwords as scrypt hashes, computed off the event loop: one hash costs tens of milliseconds by design."""

from __future__ import annotations

import asyncio
import base64
import functools
import hashlib
import hmac
import secrets
from concurrent.futures import ThreadPoolExecutor

_N, _R, _P = 2**14, 8, 1
_SALT_BYTES = 16
_KEY_BYTES = 32
_MAXMEM = 64 * 1024 * 1024
_THREADS = 2

# A stranger's name must take as long as a known one, or the time tells which addresses have accounts.
_NOBODY = (
    f"scrypt${_N}${_R}${_P}$"
    + base64.b64encode(bytes(_SALT_BYTES)).decode()
    + "$"
    + base64.b64encode(bytes(_KEY_BYTES)).decode()
)


class Passwords:
    """Hashes and checks passwords in two threads of its own, so a burst of logins queues instead of growing."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(max_workers=_THREADS, thread_name_prefix="scrypt")

    async def hash(self, password: str) -> str:
        """`scrypt$n$r$p$salt$key`, base64 parts; the parameters travel with the hash so they can be raised."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, hash_password, password)

    async def matches(self, password: str, stored: str | None) -> bool:
        """Whether the password is the stored one; no stored hash costs the same time and is never a match."""
        check = functools.partial(verify_password, password, stored or _NOBODY)
        return await asyncio.get_running_loop().run_in_executor(self._threads, check) and stored is not None

    def close(self) -> None:
        """End the threads; a hash in progress finishes unseen."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def hash_password(password: str) -> str:
    """The blocking half of `Passwords.hash`."""
    salt = secrets.token_bytes(_SALT_BYTES)
    key = _scrypt(password, salt, _N, _R, _P)
    return f"scrypt${_N}${_R}${_P}${base64.b64encode(salt).decode()}${base64.b64encode(key).decode()}"


def verify_password(password: str, stored: str) -> bool:
    """The blocking half of `Passwords.matches`; a hash that cannot be read matches nothing."""
    try:
        scheme, n, r, p, salt, key = stored.split("$")
        expected = base64.b64decode(key, validate=True)
        actual = _scrypt(password, base64.b64decode(salt, validate=True), int(n), int(r), int(p))
    except ValueError:
        return False
    return scheme == "scrypt" and hmac.compare_digest(actual, expected)


def _scrypt(password: str, salt: bytes, n: int, r: int, p: int) -> bytes:
    return hashlib.scrypt(password.encode(), salt=salt, n=n, r=r, p=p, maxmem=_MAXMEM, dklen=_KEY_BYTES)
