"""The fleet before anything is done to it: it registers, it agrees with itself, it serves.

Each spec runs twice: on the Postgres of the run, and on one in a container of a real engine.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from blackstart.cluster.waiting import eventually
from blackstart.fleet.http import client_of

if TYPE_CHECKING:
    from blackstart.fleet import Fleet

IN_A_CONTAINER = pytest.mark.cluster(postgres="container")
pytestmark = pytest.mark.parametrize(
    "fleet", ["run", pytest.param("container", marks=IN_A_CONTAINER)], indirect=True
)


@pytest.mark.holds("B-216")
@pytest.mark.cluster(frontends=1, workers=1)
def test_a_worker_appears_in_the_roster_of_the_replica_it_registered_with(fleet: Fleet) -> None:
    look = fleet.roster(via=0)
    assert look.error is None
    assert look.names == ("worker-0",)
    node = look.node("worker-0")
    assert node is not None
    assert (node.status, node.presence, node.text("owner")) == ("healthy", "connected", "frontend-0")
    assert [model["name"] for model in node.models] == ["babbler-0"]
    # the control: the probe sees a worker that is not there as absent, not as anything it might be
    assert look.value("worker-1", "status") == "<absent>"


@pytest.mark.holds("B-217", "B-153")
@pytest.mark.cluster(frontends=2, workers=1, spread=True)
def test_two_replicas_list_one_worker_by_one_id_and_honour_each_others_sessions(fleet: Fleet) -> None:
    # the worker knows replica 0 alone, so replica 1 has it from the database
    one, two = fleet.roster(via=0), fleet.roster(via=1)
    assert one.ids == two.ids == {fleet.node_id(0)}
    assert fleet.get("/api/nodes", via=1).status_code == 200, (
        "the session minted at replica 0 is not known at 1"
    )
    assert fleet.get("/api/nodes", via=1, signed_in=False).status_code == 401
    with client_of(fleet.frontend(1).url, within=fleet.timings.handshake_s) as client:
        forged = client.get("/api/nodes", headers={"Cookie": f"session={fleet.admin.cookie[:-1]}x"})
    assert forged.status_code == 401


@pytest.mark.holds("B-221", "B-189")
@pytest.mark.cluster(frontends=2, workers=2, spread=True)
def test_two_replicas_register_a_worker_each_and_have_one_roster(fleet: Fleet) -> None:
    assert fleet.worker_environ(0)["BLACKSTART_FRONTEND_URLS"] == fleet.frontend(0).url
    assert fleet.worker_environ(1)["BLACKSTART_FRONTEND_URLS"] == fleet.frontend(1).url
    assert (fleet.owner_index(0), fleet.owner_index(1)) == (0, 1)
    both = ("worker-0", "worker-1")

    def everywhere() -> list[tuple[str, ...]]:
        return [fleet.roster(via=0).names, fleet.roster(via=1).names]

    eventually(everywhere, [both, both], within=fleet.timings.start_s, watch=fleet.watch)
    assert fleet.roster(via=0).ids == fleet.roster(via=1).ids


@pytest.mark.holds("B-190", "B-193")
@pytest.mark.cluster(frontends=2, workers=2)
def test_unless_asked_otherwise_workers_dial_the_balancer_and_begin_at_replica_0(fleet: Fleet) -> None:
    for worker in (0, 1):
        assert fleet.worker_environ(worker)["BLACKSTART_FRONTEND_URLS"] == fleet.balancer.url
        assert fleet.owner_index(worker) == 0, (
            "cross-replica specs rely on every tunnel beginning at replica 0"
        )
    # the control: the balancer can take them elsewhere, so beginning at 0 is its doing and no accident
    fleet.move(1, to=1)
    assert (fleet.owner_index(0), fleet.owner_index(1)) == (0, 1)


@pytest.mark.holds("B-182", "B-178")
@pytest.mark.cluster(frontends=1, workers=1)
def test_a_cold_restarted_replica_keeps_its_port_and_knows_every_session_from_before(fleet: Fleet) -> None:
    url, cookie, key = fleet.frontend(0).url, fleet.admin.cookie, fleet.admin.api_key
    (fleet.frontend(0).place.data_dir / "left-behind").write_text("x")
    fleet.frontend(0).restart(cold=True)
    assert fleet.frontend(0).url == url
    assert not (fleet.frontend(0).place.data_dir / "left-behind").exists()
    with client_of(url, within=fleet.timings.handshake_s) as client:
        assert client.get("/api/nodes", headers={"Cookie": f"session={cookie}"}).status_code == 200
        assert client.get("/v1/models", headers={"Authorization": f"Bearer {key}"}).status_code == 200
        assert client.get("/v1/models", headers={"Authorization": f"Bearer {key}x"}).status_code == 401


@pytest.mark.holds("B-189")
@pytest.mark.cluster(frontends=2, workers=1, agents=1)
def test_an_agent_holds_a_tunnel_like_a_worker_and_is_never_placed_on(fleet: Fleet) -> None:
    # it is shown the very model the worker serves, so that what keeps it from being placed on is that it is an agent
    node = fleet.node("agent-0")
    model = Path(node.handle.environ["BLACKSTART_MODELS_DIR"]) / "babbler-0"
    model.mkdir()
    (model / "model.toml").write_text('backend = "babbler"\n')
    node.restart()
    within = fleet.timings.start_s
    eventually(
        lambda: fleet.roster(via=1).value("agent-0", "presence"),
        "connected",
        within=within,
        watch=fleet.watch,
    )
    agent, worker = fleet.roster(via=1).node("agent-0"), fleet.roster(via=1).node("worker-0")
    assert agent is not None
    assert worker is not None
    assert (agent.text("node_type"), agent.status, agent.models) == ("agent", "healthy", [])
    assert worker.text("node_type") == "backend"
    chats = [fleet.chat(via=via, max_tokens=1) for via in (0, 1, 0, 1)]
    assert {chat.node for chat in chats} == {worker.id}
