"""What a spec may ask for by name; nothing is started, and hardly anything imported, before one does."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from blackstart.core.sentinel import Baseline
from blackstart.pytest_plugin.host import host_of
from blackstart.pytest_plugin.keeping import hold_if_failed
from blackstart.pytest_plugin.markers import cluster_arguments, wanted_postgres
from blackstart.pytest_plugin.options import options_of
from blackstart.pytest_plugin.sentinels import Sentinels
from blackstart.pytest_plugin.stash import CLUSTERS, POSTGRES, failed_so_far

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from blackstart.cluster.cluster import Cluster
    from blackstart.core.topology import Topology
    from blackstart.infra import Infra
    from blackstart.record import Journal


@pytest.fixture
def journal(request: pytest.FixtureRequest) -> Journal:
    """The run's journal, this process's file of it."""
    return host_of(request.config).journal


@pytest.fixture
def infra(request: pytest.FixtureRequest) -> Iterator[Infra]:
    """Postgres: the run's server, a database of the spec's own, servers to hurt. What the spec asked for ends with it."""
    from blackstart.pytest_plugin.spec_infra import SpecInfra  # noqa: PLC0415 - nothing heavy before a fixture asks

    host, options = host_of(request.config), options_of(request.config)
    sentinels = request.config.pluginmanager.get_plugin("blackstart-sentinels")
    assert isinstance(sentinels, Sentinels)
    wanted = wanted_postgres(request.node)
    with SpecInfra(
        host.run, host.spawner, options.postgres, wanted=wanted, adopting=sentinels.adopting
    ) as own:
        yield own


@pytest.fixture
def cluster(request: pytest.FixtureRequest) -> Iterator[Callable[[Topology], Cluster]]:
    """Starts a topology: `cluster(topology)` gives the running cluster, which is ended after the spec."""
    from blackstart.cluster.cluster import Cluster  # noqa: PLC0415 - nothing heavy before a fixture asks

    host = host_of(request.config)

    with ExitStack() as stack:

        def start(topology: Topology) -> Cluster:
            made = Cluster(
                topology, run=host.run, spawner=host.spawner, journal=host.journal, spec=request.node.nodeid
            )
            started = stack.enter_context(made)
            _remember(request.node, started)
            return started

        yield start
        hold_if_failed(request)


@pytest.fixture
def fleet(request: pytest.FixtureRequest, infra: Infra) -> Iterator[Any]:
    """The embedded system's cluster, shaped by the `cluster` marker and ended after the spec."""
    from blackstart.cluster.fronts import FleetRequest, find_front  # noqa: PLC0415 - only for who asks

    front = find_front()
    if front is None:
        raise pytest.UsageError(
            "blackstart: fixture=fleet: no system is embedded; try: an entry point in the group blackstart.fleets"
        )
    host, options = host_of(request.config), options_of(request.config)
    asked = FleetRequest(
        run=host.run,
        spawner=host.spawner,
        journal=host.journal,
        infra=infra,
        spec=request.node.nodeid,
        arguments=cluster_arguments(request.node),
        preset=options.preset,
    )
    with front.fleet(asked) as made:
        _remember(request.node, made)
        if infra.started:  # a fleet on a server of its own never asked for the run's
            request.node.stash[POSTGRES] = infra.postgres.provider
        left = Baseline(tuple(front.sentinels(made)))
        left.take()
        yield made
        hold_if_failed(request)
        leaks = [] if failed_so_far(request.node) else left.leaks()
    if leaks:
        lines = "\n".join(f"  {leak}" for leak in leaks)
        pytest.fail(f"{request.node.nodeid} left behind:\n{lines}", pytrace=False)


def _remember(item: pytest.Item, cluster: Any) -> None:
    """Its processes' logs are told when the spec begins and ends, and their deaths fail it."""
    item.stash.setdefault(CLUSTERS, []).append(cluster)
    cluster.note(f"spec begins: {item.nodeid}")
