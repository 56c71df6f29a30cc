"""One database of one spec: made from a template, dropped at the end, whatever is still connected to it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from blackstart.infra import admin

if TYPE_CHECKING:
    from collections.abc import Callable

    from blackstart.infra.server import PostgresServer


@dataclass
class Database:
    """`url` connects to it. Dropping twice is fine; a drop that fails says so and raises nothing."""

    server: PostgresServer
    name: str
    within_s: float = 10.0
    dropped: bool = field(default=False, init=False)
    on_drop: Callable[[Database], None] | None = field(default=None, repr=False)

    @property
    def url(self) -> str:
        """With the password in it."""
        return self.server.url(self.name)

    def drop(self) -> str:
        """End its connections and drop it; "" or what went wrong, so that the next cleanup still runs."""
        if self.dropped:
            return ""
        trouble = admin.try_drop_database(self.server, self.name, within_s=self.within_s)
        self.dropped = not trouble
        if self.dropped and self.on_drop is not None:
            self.on_drop(self)
        return trouble


def template_key(prepare: Callable[[str], None]) -> str | None:
    """What names a preparation in every process of the run; `None` for one that only this process can name.

    A lambda, a closure or a partial looks the same elsewhere and may do something else there, so it gets no template.
    """
    name = getattr(prepare, "__qualname__", "")
    if not name or "<" in name:
        return None
    return f"{prepare.__module__}.{name}"
