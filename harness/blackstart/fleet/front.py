"""What pytest and the command line find by entry point: fixtures, sentinels and sub-commands of the embedded fleet.

Nothing of the fleet is imported before a spec or a command asks for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from blackstart.core.commands import Command

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Sequence

    from blackstart.cluster.fronts import FleetRequest
    from blackstart.core.sentinel import Sentinel
    from blackstart.fleet.fleet import Fleet


class Front:
    """The embedded fleet's front; see `blackstart.cluster.fronts.FleetFront`."""

    def fleet(self, request: FleetRequest) -> Fleet:
        """A fleet for one spec, to be entered; the `cluster` marker's arguments are `FleetOptions`' fields."""
        from blackstart.fleet.fleet import Fleet  # noqa: PLC0415 - see the module's docstring
        from blackstart.fleet.options import FleetOptions  # noqa: PLC0415 - see the module's docstring

        try:
            options = FleetOptions(**{"preset": request.preset, **request.arguments})
        except TypeError as unknown:
            raise ValueError(
                f"cluster({request.arguments}): {unknown}; try: fields of FleetOptions"
            ) from unknown
        return Fleet(
            options,
            run=request.run,
            spawner=request.spawner,
            journal=request.journal,
            infra=request.infra,
            spec=request.spec,
        )

    def sentinels(self, fleet: Fleet) -> Sequence[Sentinel]:
        """Asyncio tasks of each living replica and worker, against its own idle baseline."""
        from blackstart.fleet.sentinel import tasks_sentinel  # noqa: PLC0415 - see the module's docstring

        return (tasks_sentinel(fleet),)

    def commands(self) -> Sequence[Command]:
        """`drill` and `up`."""
        return (
            Command(
                name="drill",
                summary="kill the replica that owns a tunnel in the middle of traffic and see the fleet come back",
                add_arguments=_drill_arguments,
                run=_drill,
            ),
            Command(
                name="up",
                summary="bring up a whole fleet in the foreground; Ctrl-C ends it",
                add_arguments=_up_arguments,
                run=_up,
            ),
        )


def _drill_arguments(parser: ArgumentParser) -> None:
    from blackstart.fleet.arguments import add_run_arguments  # noqa: PLC0415 - see the module's docstring

    add_run_arguments(parser)


def _up_arguments(parser: ArgumentParser) -> None:
    from blackstart.fleet.arguments import add_run_arguments  # noqa: PLC0415 - see the module's docstring

    parser.add_argument("topology", nargs="?", metavar="TOPOLOGY", help="a topology file (not readable yet)")
    parser.add_argument("--frontends", default="2", metavar="N", help="replicas (default 2)")
    parser.add_argument("--workers", default="2", metavar="N", help="workers (default 2)")
    add_run_arguments(parser)


def _drill(arguments: Namespace) -> int:
    from blackstart.fleet.run_drill import run_drill  # noqa: PLC0415 - see the module's docstring

    return run_drill(arguments)


def _up(arguments: Namespace) -> int:
    from blackstart.fleet.up import run_up  # noqa: PLC0415 - see the module's docstring

    return run_up(arguments)


front: Any = Front()
