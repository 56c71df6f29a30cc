"""Secrets print as `***` wherever the harness writes: errors, `run.json`, the journal, crash reports.

| shape                                          | becomes                         |
|------------------------------------------------|---------------------------------|
| `postgres://user:secret@host/db`               | `postgres://user:***@host/db`   |
| `Bearer abc`, `Basic abc`                      | `Bearer ***`, `Basic ***`       |
| `Authorization: abc`, `Cookie: a=b; c=d`       | the name stays, the line goes   |
| `CLUSTER_SECRET=abc`, `--token abc`, `?key=abc`| the name stays, the value goes  |
| `{"password": "abc"}` as text or as an object  | the name stays, the value goes  |
| a PEM private key                              | its header, then `***`          |

A name is secret when one of its words is in `_WORDS`. Where a text is ambiguous more is hidden, never less. The last
part of an absolute path before a complaint (`/etc/passwd: is a file`) is no name; before one word it is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

MASK = "***"
_SAYS_NOTHING = {
    "",
    MASK,
    "bearer",
    "basic",
    "none",
    "null",
}  # a scheme stays; what follows it is hidden already

_WORDS = (
    r"passwords?|passwd|pwd|pgpassword|passphrase|secrets?|tokens?|credentials?|cookies?|authorization"
    r"|api[_-]?keys?|apikeys?|access[_-]?keys?|private[_-]?keys?|session[_-]?ids?|keys?"
)
_NOT_SECRET = re.compile(
    r"(?i)(?:process[_-]?key|tokens_per_second|max_tokens|token_count|_file|_path|_sha256)$"
)
_SECRET_NAME = re.compile(rf"(?i)(?:^|[_.\-])(?:{_WORDS})$|^(?:{_WORDS})(?:$|[_.\-])")

_URL = re.compile(r"(?P<front>(?<![A-Za-z0-9+.\-])[A-Za-z0-9+.\-]+://[^\s:/@'\"<>]*):[^\s'\"<>]*@")
_SCHEME = re.compile(r"(?i)\b(?P<scheme>bearer|basic)\s+[A-Za-z0-9._~+/=\-]+")
_HEADER = re.compile(
    r"(?i)\b(?P<name>(?:set-)?cookie|(?:proxy-)?authorization)(?P<sign>[\"']?:[ \t]*)[^\r\n\"']+"
)
_PEM = re.compile(
    r"(-----BEGIN [A-Z ]*PRIVATE KEY-----).*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL
)
_NAMED = re.compile(r"(?<![A-Za-z0-9_.\-])(?P<name>[A-Za-z0-9_.\-]+)[\"']?\s*[=:](?!//)[ \t]*")
_VALUE = re.compile(
    r"\"(?P<double>(?:[^\"\\]|\\.)*)\"?|'(?P<single>(?:[^'\\]|\\.)*)'?|(?P<bare>[^\s\"'&;,}\])]+)", re.DOTALL
)
_COMPLAINT = re.compile(r"[A-Za-z]+ [A-Za-z]+")
_BEFORE_PATH = re.compile(r"[\s=\"'(]")
_LONGEST_PATH = 4096  # of the kernel; no look back is longer


def redact(text: str) -> str:
    """The text with every secret it shows replaced."""
    text = _PEM.sub(rf"\1{MASK}", text)
    text = _URL.sub(rf"\g<front>:{MASK}@", text)
    text = _SCHEME.sub(rf"\g<scheme> {MASK}", text)
    text = _HEADER.sub(rf"\g<name>\g<sign>{MASK}", text)
    return _without_assigned(text)


def is_secret_name(name: str) -> bool:
    """Whether what stands under this name (a variable, an option, a JSON key) is a secret."""
    bare = name.lstrip("-")
    return _SECRET_NAME.search(bare) is not None and _NOT_SECRET.search(bare) is None


def redact_argv(argv: Sequence[str]) -> list[str]:
    """An argument list; the word after a secret option (`--token abc`) goes too."""
    shown: list[str] = []
    hide_next = False
    for word in argv:
        if hide_next and not word.startswith("--"):
            shown.append(MASK)
            hide_next = False
            continue
        hide_next = word.startswith("-") and "=" not in word and is_secret_name(word)
        shown.append(redact(word))
    return shown


def redact_value(value: Any) -> Any:
    """The same for nested data: texts are redacted, and texts under a secret name are hidden whole."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, Mapping):
        return {key: _member(key, item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        if all(isinstance(item, str) for item in value):
            return redact_argv(value)
        return [redact_value(item) for item in value]
    return value


def _member(key: Any, item: Any) -> Any:
    if isinstance(key, str) and isinstance(item, str | bytes) and item and is_secret_name(key):
        return MASK
    return redact_value(item)


def _without_assigned(text: str) -> str:
    shown: list[str] = []
    done = position = 0
    while named := _NAMED.search(text, position):
        position = named.end()
        value = _VALUE.match(text, position) if is_secret_name(named["name"]) else None
        if value is None or value.lastgroup is None or _complains_of_a_file(text, named):
            continue
        position = value.end()
        if value[value.lastgroup].casefold() in _SAYS_NOTHING:
            continue
        shown += [text[done : value.start(value.lastgroup)], MASK]
        done = value.end(value.lastgroup)
    return "".join([*shown, text[done:]])


def _complains_of_a_file(text: str, named: re.Match[str]) -> bool:
    """Whether the name ends an absolute path and what follows is a sentence about it."""
    begins = named.start("name")
    path = _BEFORE_PATH.split(text[max(0, begins - _LONGEST_PATH) : begins])[-1]
    return (
        named[0].endswith(": ")
        and path.startswith("/")
        and path.endswith("/")
        and not set(path) & set(":?&")
        and _COMPLAINT.match(text, named.end()) is not None
    )
