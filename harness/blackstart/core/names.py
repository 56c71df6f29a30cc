"""Folder names for specs and nodes: safe on any file system, bounded, and never shared by two different names.

A name made only of letters, digits, `.`, `_` and `-` stays as it is. Any other is spelled with dashes and ends in a
hash of what it was, and so does a name that is too long, is reserved, or looks as if it already ended in such a hash.
"""

from __future__ import annotations

import hashlib
import re

NAME_LIMIT = 96
_HASH_LENGTH = 10
_RESERVED = frozenset(
    {"journal", "run.json", "run.lock", "ledger.jsonl", "guardian.log", "latest", "readme.md"}
)
_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
_HASHED = re.compile(rf".*-[0-9a-f]{{{_HASH_LENGTH}}}")
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")


def safe_name(name: str, *, limit: int = NAME_LIMIT) -> str:
    """`name` as a folder or file name of at most `limit` characters; an over-long one gives exactly `limit`."""
    if limit < 2 * _HASH_LENGTH:
        raise ValueError(f"limit={limit}: leaves no room for a hash; try: {NAME_LIMIT}")
    if (
        len(name) <= limit
        and _PLAIN.fullmatch(name)
        and not _HASHED.fullmatch(name)
        and name.casefold() not in _RESERVED
    ):
        return name
    digest = hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()[:_HASH_LENGTH]
    readable = re.sub(r"\A[-.]", "_", _UNSAFE.sub("-", name)) or "unnamed"
    return f"{readable[: limit - _HASH_LENGTH - 1]}-{digest}"
