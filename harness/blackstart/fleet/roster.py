"""What a replica says about the nodes, kept so that "nothing" can always be told from "could not be read".

A list that is empty because of a 401, a body that did not decode, and a worker that never registered look alike to
whoever only counts entries. So a look keeps its error, the last good roster stays beside it, raw keys are kept as they
came, and a status that could not be read is a text no status equals.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import httpx2

ABSENT = "<absent>"


def unreadable(why: str) -> str:
    """The sentinel of a value that could not be read; equal to no real value."""
    return f"<unreadable: {why}>"


@dataclass(frozen=True)
class NodeEntry:
    """One node as a replica lists it. `raw` has every key exactly as it came."""

    raw: Mapping[str, Any] = field(repr=False)

    @property
    def name(self) -> str:
        """The node's name."""
        return str(self.raw.get("name", unreadable("no key 'name'")))

    @property
    def id(self) -> str:
        """The node's id."""
        return self.text("id")

    @property
    def status(self) -> str:
        """`pending`, `healthy`, `unhealthy`, `offline`, `draining`, or a sentinel."""
        return self.text("status")

    @property
    def presence(self) -> str:
        """`unknown`, `connected`, `reconnecting`, `gone`, or a sentinel."""
        return self.text("presence")

    @property
    def models(self) -> list[dict[str, Any]]:
        """Its models as reported; empty also when the key is missing, so ask `raw` where that matters."""
        models = self.raw.get("models")
        return [model for model in models if isinstance(model, dict)] if isinstance(models, list) else []

    def serves(self, models: int) -> bool:
        """Whether it is healthy and connected, and so many of its models are ready."""
        ready = sum(model.get("state") == "ready" for model in self.models)
        return (self.status, self.presence) == ("healthy", "connected") and ready >= models

    def text(self, key: str) -> str:
        """A key's value as text; a key that is not there, or holds no text, is a sentinel and not empty."""
        if key not in self.raw:
            return unreadable(f"no key {key!r} among {', '.join(sorted(self.raw))}")
        value = self.raw[key]
        return value if isinstance(value, str) else unreadable(f"{key}={value!r} is no text")

    def present_and_empty(self, key: str) -> bool:
        """Whether the key is there *and* holds the empty text: a key that moved is not an empty one."""
        return key in self.raw and self.raw[key] == ""

    def __str__(self) -> str:
        """One readable line."""
        shown = ("status", "status_reason", "presence", "owner", "epoch")
        return f"{self.name}({', '.join(f'{key}={self.raw.get(key)!r}' for key in shown)})"


@dataclass(frozen=True)
class RosterLook:
    """One look: the nodes, or the error with the last good roster beside it."""

    via: str
    nodes: tuple[NodeEntry, ...] = ()
    error: str | None = None
    last_good: tuple[NodeEntry, ...] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Sorted names."""
        return tuple(sorted(node.name for node in self.nodes))

    @property
    def ids(self) -> frozenset[str]:
        """Ids, which is what two replicas' rosters are compared by."""
        return frozenset(node.id for node in self.nodes)

    def node(self, name: str) -> NodeEntry | None:
        """The node of that name, or None."""
        return next((node for node in self.nodes if node.name == name), None)

    def value(self, name: str, key: str) -> str:
        """One text of one node; a sentinel when the roster could not be read or the node is not in it."""
        if self.error is not None:
            return unreadable(self.error)
        node = self.node(name)
        return ABSENT if node is None else node.text(key)

    def __str__(self) -> str:
        """The nodes, or whichever happened instead and what was seen before it."""
        if self.error is None:
            return f"{self.via}: {', '.join(str(node) for node in self.nodes) or 'no nodes'}"
        before = (
            "never read"
            if self.last_good is None
            else ", ".join(str(node) for node in self.last_good) or "no nodes"
        )
        return f"{self.via}: {self.error}; last good roster: {before}"


class RosterProbe:
    """Looks at `GET /api/nodes` of one replica and remembers. Calling it never raises: an error is part of the look."""

    def __init__(self, via: str, fetch: Callable[[], httpx2.Response]) -> None:
        self.via = via
        self._fetch = fetch
        self.last_error: str | None = None
        self.last_good: tuple[NodeEntry, ...] | None = None

    def __call__(self) -> RosterLook:
        """One look."""
        try:
            nodes = _decode(self._fetch())
        except Exception as wrong:  # noqa: BLE001 - whatever hindered the look is what was seen, and is told
            self.last_error = f"{type(wrong).__name__}: {wrong}"
            return RosterLook(self.via, error=self.last_error, last_good=self.last_good)
        self.last_good = nodes
        return RosterLook(self.via, nodes=nodes, last_good=nodes)

    def __str__(self) -> str:
        """What was seen last, for a wait that failed."""
        good = (
            "never read"
            if self.last_good is None
            else ", ".join(str(node) for node in self.last_good) or "no nodes"
        )
        return f"roster via {self.via}: last error {self.last_error}; last good {good}"


def _decode(answer: httpx2.Response) -> tuple[NodeEntry, ...]:
    if answer.status_code != 200:
        raise ValueError(f"GET /api/nodes answered {answer.status_code} {answer.text[:200]!r}")
    body = answer.json()
    if not isinstance(body, list) or not all(isinstance(entry, dict) for entry in body):
        raise ValueError(f"GET /api/nodes: not a list of objects: {answer.text[:200]!r}")
    return tuple(NodeEntry(entry) for entry in body)
