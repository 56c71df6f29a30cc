"""Markers are validated when collected: a typo in one must not become a spec that quietly holds nothing."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from blackstart.core.gate import CAPABILITIES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

FIXTURES = frozenset({"journal", "infra", "cluster", "fleet"})
BLACKSTART_MARKERS = ("cluster", "holds", "needs")

_DECLARATIONS = (
    "cluster(frontends=, workers=, ...): the spec runs real processes; the arguments shape its fleet",
    "holds(id, ...): the one to four inventory ids this spec proves",
    "needs(capability, ...): skipped with its reason where the machine lacks it, failed where BLACKSTART_REQUIRE names it",
    "production: a cluster spec that also runs on production timings",
)
_ID = re.compile(r"[BHT]-[1-9][0-9]{0,2}")
_MOST_IDS = 4


def declare_markers(config: pytest.Config) -> None:
    """Registers them, so that `--strict-markers` accepts exactly these."""
    for line in _DECLARATIONS:
        config.addinivalue_line("markers", line)


def validate_markers(items: Iterable[pytest.Item]) -> None:
    """`pytest.UsageError` for the first marker that cannot be meant, naming the spec."""
    for item in items:
        for mark in item.iter_markers():
            objection = objection_to(mark)
            if objection:
                raise pytest.UsageError(f"blackstart: {item.nodeid}: @pytest.mark.{mark.name}: {objection}")


def objection_to(mark: pytest.Mark) -> str | None:
    """Why a mark of ours cannot be meant; `None` for one that can, and for those of others."""
    judge = _OBJECTIONS.get(mark.name)
    return judge(mark.args, mark.kwargs) if judge else None


def is_marked(item: pytest.Item) -> bool:
    """Whether the item carries a blackstart marker: only such runs are gated and recorded."""
    return any(item.get_closest_marker(name) is not None for name in BLACKSTART_MARKERS)


def uses_the_run(item: pytest.Item) -> bool:
    """Whether the item asks for real processes or for the journal; no run is made for the others."""
    names = set(getattr(item, "fixturenames", ()))
    return bool(names & FIXTURES) or item.get_closest_marker("cluster") is not None


def held_ids(item: pytest.Item) -> tuple[str, ...]:
    """The ids of all `holds` marks on the item, each once."""
    return tuple(dict.fromkeys(str(one) for mark in item.iter_markers("holds") for one in mark.args))


def needed_capabilities(item: pytest.Item) -> tuple[str, ...]:
    """The capabilities of all `needs` marks on the item, each once, and the container its `cluster` mark wants."""
    named = [str(one) for mark in item.iter_markers("needs") for one in mark.args]
    return tuple(dict.fromkeys([*named, *filter(None, [wanted_postgres(item)])]))


def cluster_arguments(item: pytest.Item) -> dict[str, Any]:
    """The merged arguments of the item's `cluster` marks but `postgres`, which is the harness's; the closest wins."""
    return {name: value for name, value in _merged(item).items() if name != "postgres"}


def wanted_postgres(item: pytest.Item) -> str | None:
    """Where the item's `cluster` mark wants its Postgres, whatever the run's choice is; `None` where it does not care."""
    wanted = _merged(item).get("postgres")
    return None if wanted is None else str(wanted)


def _merged(item: pytest.Item) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for mark in item.iter_markers("cluster"):
        merged = {**mark.kwargs, **merged}
    return merged


def _holds(args: tuple[object, ...], kwargs: Mapping[str, object]) -> str | None:
    if kwargs:
        return f"takes ids only, not {', '.join(kwargs)}=; try: holds('B-12')"
    if not args or len(args) > _MOST_IDS:
        return f"{len(args)} ids, one to {_MOST_IDS} are allowed; try: another spec for the rest"
    for one in args:
        if not isinstance(one, str) or not _ID.fullmatch(one):
            return f"{one!r} is no inventory id; try: 'B-12', 'H-3' or 'T-40'"
    return None if len(set(args)) == len(args) else "an id is named twice"


def _needs(args: tuple[object, ...], kwargs: Mapping[str, object]) -> str | None:
    if kwargs or not args:
        return "takes names of capabilities; try: needs('container')"
    unknown = [str(one) for one in args if one not in CAPABILITIES]
    return f"{unknown[0]} is no capability; try: {', '.join(CAPABILITIES)}" if unknown else None


def _cluster(args: tuple[object, ...], kwargs: Mapping[str, object]) -> str | None:
    if kwargs.get("postgres", "container") != "container":
        return (
            f"postgres={kwargs['postgres']!r}: only a container can be had beside the run's; try: 'container'"
        )
    return f"takes named arguments only, not {args[0]!r}; try: cluster(frontends=2)" if args else None


_OBJECTIONS = {"holds": _holds, "needs": _needs, "cluster": _cluster}
