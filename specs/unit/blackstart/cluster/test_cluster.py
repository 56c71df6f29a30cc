"""A cluster starts in order, finds its nodes strictly, and lets no unasked death pass."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from blackstart.cluster.cluster import NoSuchNode
from blackstart.cluster.lifecycle import State
from blackstart.cluster.node import UnexpectedDeath
from blackstart.cluster.readiness import NodeNotReady
from blackstart.cluster.waiting import NodeDied, eventually
from blackstart.core.topology import Group
from blackstart.net import is_free
from blackstart.process import environ_of

from .conftest import SOON, die, web

if TYPE_CHECKING:
    from collections.abc import Callable

    from blackstart.cluster.cluster import Cluster

    from .conftest import World


@pytest.mark.holds("B-187")
@pytest.mark.parametrize("index", [-1, 2, 99])
def test_an_index_out_of_bounds_is_an_error_and_never_a_real_node(
    one: Callable[..., Cluster], index: int
) -> None:
    cluster = one(count=2)
    with pytest.raises(
        NoSuchNode, match=rf"node web-{index}: is not in this cluster; try: one of web-0, web-1"
    ):
        cluster.node("web", index)


@pytest.mark.holds("B-187", "B-181")
def test_names_and_services_that_are_not_there_are_errors_too(one: Callable[..., Cluster]) -> None:
    cluster = one(count=2)
    with pytest.raises(NoSuchNode, match="node db-0"):
        cluster.node("db-0")
    with pytest.raises(NoSuchNode, match="service db: is not in this cluster; try: one of web"):
        cluster.group("db")
    assert [node.name for node in cluster.group("web")] == ["web-0", "web-1"]


def test_nodes_start_after_what_they_need_and_are_told_where_it_is(world: World) -> None:
    cluster = world.cluster(
        Group(service=web("front", "after=back-0", after=("back",)), count=2), Group(service=web("back"))
    )
    with cluster:
        assert all(node.alive for node in cluster.nodes)
        front = cluster.node("front-0")
        assert front.place.others["back-0"].port == cluster.node("back-0").port


def test_what_is_done_beside_a_stage_has_the_stages_before_it_and_waits_for_no_node_of_its_own(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = world.cluster(Group(service=web("front", after=("back",))), Group(service=web("back")))
    seen: list[State] = []

    def act() -> None:
        seen.append(cluster.node("back-0").state)
        eventually(lambda: cluster.node("front-0").incarnation, 1, within=SOON)

    monkeypatch.setattr(cluster, "_beside", lambda stage: [act] if stage[0].service.name == "front" else [])
    with cluster:
        assert seen == [State.READY]


def test_what_is_done_beside_a_stage_is_part_of_the_start_and_fails_it(
    one: Callable[..., Cluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise ZeroDivisionError("beside it")

    cluster = one()
    monkeypatch.setattr(cluster, "_beside", lambda _: [fail])
    with pytest.raises(ZeroDivisionError, match="beside it"):
        cluster.start()


def test_every_process_carries_the_run_and_the_user_that_asked(one: Callable[..., Cluster]) -> None:
    cluster = one()
    cluster.start()
    environ = environ_of(cluster.node("web-0").pid)
    assert environ["BLACKSTART_RUN"] == cluster.run.id
    assert environ["BLACKSTART_USER"].isdigit()


def test_closing_ends_everything_and_gives_the_ports_back(one: Callable[..., Cluster]) -> None:
    cluster = one(count=2)
    cluster.start()
    handles, ports = [node.handle for node in cluster.nodes], [node.port for node in cluster.nodes]
    cluster.close()
    assert not any(handle.alive for handle in handles)
    assert all(is_free(port) for port in ports)


def test_an_unasked_death_fails_whoever_closes_the_cluster(one: Callable[..., Cluster]) -> None:
    cluster = one(count=2)
    cluster.start()
    cluster.check()
    die(cluster.node("web-1"))
    with pytest.raises(UnexpectedDeath, match=r"web-1.*exit status 7"):
        cluster.check()
    with pytest.raises(UnexpectedDeath, match=r"web-1.*exit status 7"):
        cluster.close()
    assert not cluster.node("web-0").alive


def test_a_death_that_was_asked_for_is_none(one: Callable[..., Cluster]) -> None:
    cluster = one(count=2)
    cluster.start()
    cluster.node("web-0").kill()
    cluster.node("web-1").stop()
    cluster.close()


def test_a_specs_own_error_stays_the_error_and_the_death_is_added_to_it(one: Callable[..., Cluster]) -> None:
    cluster = one()

    def story() -> None:
        with cluster:
            die(cluster.node("web-0"))
            raise ZeroDivisionError("the spec's own")

    with pytest.raises(ZeroDivisionError, match="the spec's own") as seen:
        story()
    assert any("exit status 7" in note for note in seen.value.__notes__)


def test_a_wait_watches_what_is_meant_to_run_and_not_what_was_killed(one: Callable[..., Cluster]) -> None:
    cluster = one(count=2)
    cluster.start()
    cluster.node("web-0").kill()
    assert [node.name for node in cluster.watch] == ["web-1"]
    assert eventually(lambda: True, True, within=SOON, watch=cluster.watch)
    die(cluster.node("web-1"))
    with pytest.raises(NodeDied, match="exit status 7"):
        eventually(lambda: False, True, within=SOON, watch=cluster.watch)


def test_when_one_node_cannot_start_the_others_are_ended(world: World) -> None:
    cluster = world.cluster(Group(service=web("good")), Group(service=web("bad", "crash=3", after=("good",))))
    with pytest.raises(NodeNotReady, match="exit status 3"), cluster:
        pytest.fail("entered although a node could not start")
    assert not cluster.node("good-0").alive


def test_stop_ends_all_gracefully_and_start_brings_them_back(one: Callable[..., Cluster]) -> None:
    cluster = one(count=2)
    cluster.start()
    cluster.stop()
    assert [node.handle.exit.code for node in cluster.nodes if node.handle.exit] == [0, 0]
    cluster.start()
    assert [node.incarnation for node in cluster.nodes] == [2, 2]


def test_a_note_is_written_into_the_log_of_every_running_process(one: Callable[..., Cluster]) -> None:
    cluster = one(count=2)
    cluster.start()
    cluster.node("web-0").kill()
    cluster.note("the owner is killed now")
    assert "the owner is killed now" in cluster.node("web-1").log.text()
    assert "the owner is killed now" not in cluster.node("web-0").log.text()
