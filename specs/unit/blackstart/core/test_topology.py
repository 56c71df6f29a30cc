"""A topology is refused by name when it cannot be started, and says in which order it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from blackstart.core.topology import (
    ArgvService,
    Command,
    Group,
    HttpReady,
    LogReady,
    Place,
    Service,
    TcpReady,
    Topology,
    TopologyError,
)


def _service(name: str, *, after: tuple[str, ...] = (), ports: int = 1) -> ArgvService:
    return ArgvService(name=name, argv=("true",), after=after, ports=ports)


def _place(**changes: object) -> Place:
    fields: dict[str, object] = {
        "name": "app-1",
        "index": 1,
        "ports": (7001, 7002),
        "data_dir": Path("/run/app-1"),
    }
    return Place(**{**fields, **changes})  # type: ignore[arg-type]  # a spec's shorthand over a typed constructor


def test_nodes_are_named_after_their_service_and_counted_from_zero() -> None:
    topology = Topology(groups=(Group(service=_service("app"), count=2), Group(service=_service("db"))))
    assert topology.node_names == ("app-0", "app-1", "db-0")


def test_stages_put_each_service_after_what_it_needs() -> None:
    topology = Topology(
        groups=(
            Group(service=_service("client", after=("app",))),
            Group(service=_service("app", after=("db",)), count=3),
            Group(service=_service("db")),
            Group(service=_service("cache")),
        )
    )
    names = [[group.service.name for group in stage] for stage in topology.stages()]
    assert names == [["db", "cache"], ["app"], ["client"]]


def test_services_that_wait_for_each_other_are_refused_naming_the_ring() -> None:
    with pytest.raises(TopologyError, match="wait for each other: a after b, b after a"):
        Topology(
            groups=(Group(service=_service("a", after=("b",))), Group(service=_service("b", after=("a",))))
        )


@pytest.mark.parametrize(
    ("groups", "said"),
    [
        (
            (
                Group(
                    service=_service("App"),
                ),
            ),
            "service 'App': not a usable name",
        ),
        ((Group(service=_service("../x")),), "not a usable name"),
        ((Group(service=_service("n" * 300)),), "not a usable name"),
        ((Group(service=_service("app")), Group(service=_service("app"))), "app: is there twice"),
        ((Group(service=_service("app"), count=-1),), "count=-1: must be from 0 to 1000"),
        ((Group(service=_service("app", ports=0)),), "must be 0 <= listens <= ports"),
        ((Group(service=_service("app", after=("db",))),), "after='db': no such service"),
        (
            (Group(service=ArgvService(name="app", argv=("true",), faults=frozenset({"melt"}))),),
            "faults=melt: unknown",
        ),
    ],
)
def test_a_topology_that_cannot_be_started_is_refused_by_name(groups: tuple[Group, ...], said: str) -> None:
    with pytest.raises(TopologyError, match=said):
        Topology(groups=groups)


def test_a_budget_is_the_topologys_own_or_the_default_and_an_unknown_one_is_named() -> None:
    topology = Topology(groups=(), budgets={"ready": 3.5, "failover": 9.0})
    assert topology.budget("ready") == 3.5
    assert topology.budget("failover") == 9.0
    assert topology.budget("stop") > 0
    with pytest.raises(
        TopologyError, match="budget melt: is not declared; try: one of death, failover, ready, stop"
    ):
        topology.budget("melt")


@pytest.mark.parametrize("seconds", [0, -1.0, float("nan")])
def test_a_budget_of_no_time_is_refused(seconds: float) -> None:
    with pytest.raises(TopologyError, match="must be seconds above 0"):
        Topology(groups=(), budgets={"ready": seconds})


def test_no_cluster_tolerates_more_faults_than_it_has_nodes() -> None:
    with pytest.raises(TopologyError, match="tolerates=3"):
        Topology(groups=(Group(service=_service("app"), count=2),), tolerates=3)


def test_an_argv_service_is_filled_in_from_its_place() -> None:
    service = ArgvService(
        name="app",
        argv=("app", "--listen", "{host}:{port}", "--admin", "{port1}", "--data", "{data}"),
        env={"NAME": "{name}", "NUMBER": "{index}", "BRACE": "{{}}"},
        ports=2,
    )
    command = service.command(_place())
    assert command.argv == ("app", "--listen", "127.0.0.1:7001", "--admin", "7002", "--data", "/run/app-1")
    assert command.env == {"NAME": "app-1", "NUMBER": "1", "BRACE": "{}"}


def test_an_argv_service_names_the_field_it_cannot_fill() -> None:
    with pytest.raises(TopologyError, match=r"'{porrt}'.*cannot be filled in; try: one of name, index"):
        ArgvService(name="app", argv=("{porrt}",)).command(_place())


def test_a_command_keeps_its_variables_out_of_its_repr() -> None:
    assert "hunter2" not in repr(Command(argv=("x",), env={"TOKEN": "hunter2"}))


def test_a_service_is_a_small_class() -> None:
    class Echo(Service):
        name = "echo"

        def command(self, place: Place) -> Command:
            return Command(argv=("echo", place.address))

    topology = Topology(groups=(Group(service=Echo()),))
    assert topology.node_names == ("echo-0",)
    assert Echo().command(_place()).argv == ("echo", "127.0.0.1:7001")


def test_an_accepted_connection_is_not_readiness() -> None:
    with pytest.raises(TopologyError, match="an accepted connection is not readiness"):
        TcpReady(expect=b"")


def test_a_place_without_ports_says_so() -> None:
    with pytest.raises(TopologyError, match="app-1: has no port"):
        _ = _place(ports=()).port


def test_readiness_describes_itself_for_error_texts() -> None:
    assert str(HttpReady(path="/healthz")) == "GET /healthz answering 200"
    assert str(LogReady(pattern="up")) == "a log line matching 'up'"
