"""Reading one variable of the environment into one checked value; every failure is a `SettingsError`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, urlsplit

from inference_fleet.settings.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Mapping

_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"0", "false", "no", "off"})
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,126}[A-Za-z0-9])?")


class Reader:
    """The `BLACKSTART_*` variables of one environment; names are given without the prefix."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ

    def raw(self, name: str) -> str | None:
        """The variable as it stands, or None when it is not set at all."""
        return self._environ.get(self.variable(name))

    def text(self, name: str, default: str = "") -> str:
        """The variable without surrounding blanks; unset and empty give the default."""
        value = (self.raw(name) or "").strip()
        if "\0" in value or len(value) > 4096:
            raise SettingsError(
                self.variable(name), f"{value[:40]!r}...", "at most 4096 characters, none of them NUL"
            )
        return value or default

    def required(self, name: str, what: str) -> str:
        """Like `text`, but a missing value is an error that says what it is for."""
        value = self.text(name)
        if not value:
            raise SettingsError(
                self.variable(name),
                "",
                f"set: {what}",
                remedy=f"set {self.variable(name)}; it has no default",
            )
        return value

    def flag(self, name: str, *, default: bool) -> bool:
        """A yes or no; anything unreadable is an error, never a guess."""
        value = self.text(name).lower()
        if not value:
            return default
        if value in _TRUE:
            return True
        if value in _FALSE:
            return False
        raise SettingsError(self.variable(name), value, "true or false")

    def choice(self, name: str, allowed: tuple[str, ...], default: str) -> str:
        """One of a closed set."""
        value = self.text(name, default)
        if value not in allowed:
            raise SettingsError(self.variable(name), value, " or ".join(allowed))
        return value

    def port(self, name: str, default: int | None) -> int | None:
        """A TCP port from 1 to 65535, or the default when unset."""
        value = self.text(name)
        return default if not value else _port(self.variable(name), value)

    def address(self, name: str, default: str) -> tuple[str, int]:
        """`HOST:PORT` with a literal or a name as host; port 0 asks the kernel for one."""
        value = self.text(name, default)
        host, _, port = value.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        if not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
            raise SettingsError(self.variable(name), value, "HOST:PORT with a port from 0 to 65535")
        return host, int(port)

    def path(self, name: str, default: str) -> Path:
        """A path, made absolute against the working folder."""
        return Path(self.text(name, default)).expanduser().absolute()

    def file(self, name: str) -> Path | None:
        """A path like `path`, or None when unset; what a file holds is never taken for its name, nor shown."""
        value = self.raw(name) or ""
        if "-----" in value or "\n" in value.strip():
            raise SettingsError(
                self.variable(name),
                "***",
                "the path of a file, and not what such a file holds",
                remedy=f"write it to a file and set {self.variable(name)} to its path",
            )
        return self.path(name, "") if value.strip() else None

    def urls(self, name: str, schemes: tuple[str, ...], what: str) -> tuple[str, ...]:
        """One or several comma-separated URLs with a host."""
        value = self.required(name, what)
        urls = tuple(part.strip().rstrip("/") for part in value.split(",") if part.strip())
        for url in urls:
            parts = usable_url(url)
            if parts is None or parts.scheme not in schemes:
                raise SettingsError(
                    self.variable(name),
                    url,
                    f"URLs with {' or '.join(schemes)}, a host and, where one is named, a port from 1 to 65535",
                    remedy=f"set {self.variable(name)} to the likes of {schemes[0]}://frontend.example:8080",
                )
        return urls

    def name(self, name: str, default: str) -> str:
        """A node or instance name: letters, digits, dots, dashes and underscores, 128 characters at most."""
        value = self.text(name, default)
        if not _NAME.fullmatch(value):
            raise SettingsError(
                self.variable(name),
                repr(value[:64]),
                "1 to 128 letters, digits, dots, dashes or underscores, a letter or digit at either end",
            )
        return value

    @staticmethod
    def variable(name: str) -> str:
        """The full name of a variable."""
        return f"BLACKSTART_{name}"


def usable_url(url: str) -> SplitResult | None:
    """The parts of a URL with a host that could be dialled; None for one without, or with a port no host has."""
    try:
        parts = urlsplit(url)
        dialable = bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port out of range, or brackets around what is no address
        return None
    return parts if dialable else None


def _port(variable: str, value: str) -> int:
    if not value.isascii() or not value.isdigit() or not 1 <= int(value) <= 65535:
        raise SettingsError(variable, value, "a port from 1 to 65535")
    return int(value)
