"""Which Postgres a run asked for, read once at the edge, so that a wrong word never becomes a silent default."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from enum import StrEnum
from urllib.parse import parse_qsl, urlsplit, urlunsplit

from blackstart.infra.errors import BadPostgresOption

DEFAULT_OPTION = "embedded"
IMAGE_VARIABLE = "BLACKSTART_POSTGRES_IMAGE"
DEFAULT_IMAGE = "postgres:17-alpine"
_SCHEMES = ("postgresql", "postgres")
_REMEDY = "embedded, container, or postgresql://USER:PASSWORD@HOST:PORT/DATABASE"


class Provider(StrEnum):
    """Where a server comes from."""

    EMBEDDED = "embedded"  # the wheel's binaries, a data folder of the run's own
    CONTAINER = "container"  # an image on a container engine
    EXTERNAL = "external"  # somebody's server, by URL


@dataclass(frozen=True)
class PostgresChoice:
    """A provider and, for an external server, its URL."""

    provider: Provider
    url: str = field(default="", repr=False)  # holds a password

    def __str__(self) -> str:
        """As the option was given, without its password."""
        return redact_url(self.url) if self.url else self.provider.value


def never_asked(choice: PostgresChoice) -> str:
    """What a run says that could have done without; whoever only says that much needs no driver."""
    return f"Postgres: {choice} (never asked for)"


def image_name() -> str:
    """The image of containers in this run: the variable's, or the official one."""
    return os.environ.get(IMAGE_VARIABLE, "").strip() or DEFAULT_IMAGE


def redact_url(url: str) -> str:
    """The URL with `***` where a password stands, in the authority as in the query."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "***"
    userinfo, at, address = parts.netloc.rpartition("@")
    if ":" in userinfo:
        userinfo = userinfo.partition(":")[0] + ":***"
    query = "&".join(
        f"{name}=***" if "pass" in name.lower() else f"{name}={value}"
        for name, value in parse_qsl(parts.query, keep_blank_values=True)
    )
    return urlunsplit((parts.scheme, userinfo + at + address, parts.path, query, parts.fragment))


def parse_choice(option: str, *, thing: str = "--bs-postgres") -> PostgresChoice:
    """`embedded`, `container` or a URL; anything else is `BadPostgresOption`, which names the option."""
    word = option.strip()
    if word in {Provider.EMBEDDED, Provider.CONTAINER}:
        return PostgresChoice(Provider(word))
    wrong = _what_is_wrong_with(word)
    if wrong:
        shown = redact_url(word) if "://" in word else word[:100]
        raise BadPostgresOption(thing, shown, wrong=wrong, remedy=_REMEDY)
    return PostgresChoice(Provider.EXTERNAL, word)


def _what_is_wrong_with(url: str) -> str:
    if "://" not in url:
        return "names no provider of Postgres"
    if any(ord(character) < 0x21 for character in url):
        return "has a space or a control character in it"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        # urlsplit quotes what it could not read, and that may be the password's half of a badly quoted URL.
        return "has a port outside 0 to 65535" if "range" in str(error) else "is not a URL that can be read"
    faults = {
        f"has the scheme {parts.scheme!r}, which is no Postgres": parts.scheme not in _SCHEMES,
        "names no host": not parts.hostname,
        "has port 0, where nothing listens": port == 0,
    }
    return next((wrong for wrong, found in faults.items() if found), "")
