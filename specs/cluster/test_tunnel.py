"""Every byte to a worker goes through the tunnel it dialled, wherever the request came in, and through nothing else."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest

from blackstart.cluster.waiting import eventually
from blackstart.fleet.chat import Result
from inference_fleet.route.outcomes import carries_absence
from inference_fleet.tunnel import Refusal, StreamRefused

from .playing import relay

if TYPE_CHECKING:
    from blackstart.fleet import Fleet


@pytest.mark.holds("B-222", "B-197")
@pytest.mark.cluster(frontends=2, workers=1)
def test_a_worker_without_any_address_is_reached_through_its_tunnel(fleet: Fleet) -> None:
    node = fleet.roster(via=0).node("worker-0")
    assert node is not None
    for key in ("address", "http_address"):
        assert node.present_and_empty(key), f"{key}: {node.text(key)!r}"
        assert not node.present_and_empty(f"{key}_moved")  # the control: a key that is not there is not empty
    chat = fleet.chat(via=0, seed=7)
    assert (chat.result, chat.route, chat.node) == (Result.COMPLETE, "local", node.id)
    row = fleet.owner_row(0)
    assert row is not None
    assert row["owner"] == "frontend-0", "the row does not name the replica that served"


@pytest.mark.holds("B-223")
@pytest.mark.cluster(frontends=2, workers=1)
def test_a_request_at_the_replica_that_does_not_own_the_worker_is_relayed(fleet: Fleet) -> None:
    before = fleet.wait_owner(0, 0)
    # the first request ever for this model
    chat = fleet.chat(via=1, seed=7)
    after = fleet.owner_of(0)
    assert after == before, "the worker moved meanwhile: a 200 would prove no relay"
    assert (chat.result, chat.route) == (Result.COMPLETE, "relayed")
    assert fleet.metrics(0).value("blackstart_relayed_bytes_total") > 0
    # the control: at the owner the same request is not relayed, and says the same
    direct = fleet.chat(via=0, seed=7)
    assert (direct.route, direct.text) == ("local", chat.text)
    carriers = {
        path: fleet.metrics(0).value("blackstart_tunnel_carrier", path=path) for path in ("takeover", "asgi")
    }
    assert carriers == {"takeover": 1, "asgi": 0}, "the tunnel's bytes took the slow way through the server"


@pytest.mark.holds("B-223")
@pytest.mark.cluster(frontends=2, workers=1)
def test_a_relayed_stream_says_what_a_local_one_says(fleet: Fleet) -> None:
    texts = {}
    for via in (0, 1):
        pending = fleet.open_chat(via=via, seed=11, stream=True, max_tokens=48)
        texts[via] = pending.wait(within=fleet.timings.request_s)
    assert {via: chat.route for via, chat in texts.items()} == {0: "local", 1: "relayed"}
    assert texts[0].text == texts[1].text
    assert texts[0].pieces > 1
    assert (
        fleet.chat(via=0, seed=12, max_tokens=48).text != texts[0].text
    )  # the control: another seed differs


@pytest.mark.holds("B-225", "B-194")
@pytest.mark.cluster(frontends=2, workers=1, timings_s={"reconnect_grace_s": 60.0})
def test_without_its_tunnel_a_worker_is_reached_by_nobody_and_with_it_again(fleet: Fleet) -> None:
    assert fleet.chat(via=0).ok
    beat = fleet.roster(via=0).value("worker-0", "last_heartbeat")
    rule = fleet.block_tunnel(0)
    timings = fleet.timings
    within = timings.keepalive_timeout_s + timings.handshake_s
    eventually(lambda: fleet.owner_of(0), None, within=within, watch=fleet.watch)
    eventually(
        lambda: fleet.balancer.hits(rule) > 0,
        True,
        within=2 * timings.reconnect_backoff_max_s,
        watch=fleet.watch,
    )
    # registration and heartbeats still pass
    eventually(
        lambda: fleet.roster(via=0).value("worker-0", "last_heartbeat") > beat,
        True,
        within=4 * timings.heartbeat_s,
        watch=fleet.watch,
    )
    assert fleet.status(0, via=0) == "healthy", "inside the grace nobody is demoted"
    for via in (0, 1):
        chat = fleet.chat(via=via)
        assert (chat.result, chat.error) == (Result.ERROR, "no_route"), str(chat)
        assert "no route" in chat.why
    # nothing else is changed
    fleet.lift(rule)
    within = 2 * timings.reconnect_backoff_max_s + timings.handshake_s
    eventually(lambda: fleet.chat(via=0).ok, True, within=within, watch=fleet.watch)
    assert fleet.chat(via=1).ok


@pytest.mark.cluster(frontends=2, workers=1, advertise=False)
def test_a_replica_without_an_address_is_present_serves_its_own_and_is_dialled_by_nobody(
    fleet: Fleet,
) -> None:
    instances = fleet.get("/api/instances", via=1).json()
    assert {(one["id"], one["address"]) for one in instances} == {("frontend-0", ""), ("frontend-1", "")}
    fleet.wait_owner(0, 0)
    refused = fleet.chat(via=1)
    assert (refused.result, refused.error) == (Result.ERROR, "no_route"), str(refused)
    assert fleet.metrics(1).total("blackstart_dials_total", outcome="no-relay-path") > 0
    # the control: at the owner the same request needs no address
    assert fleet.chat(via=0).route == "local"
    assert fleet.presence(0, via=1) == "connected"


@pytest.mark.holds("B-227", "B-63")
@pytest.mark.cluster(frontends=1, workers=1)
def test_a_relay_for_a_node_nobody_holds_is_answered_not_owner_and_claims_no_absence(fleet: Fleet) -> None:
    began = time.monotonic()
    refused = asyncio.run(relay(fleet, node="node-nobody-holds", epoch=1))
    assert isinstance(refused, StreamRefused)
    assert refused.refusal is Refusal.NOT_OWNER
    assert not refused.evidence, "a replica's answer is no word of the worker"
    assert not carries_absence(refused)
    assert time.monotonic() - began < fleet.timings.relay_frame_s, "it was a deadline and no answer"
    # the control: the same link relays to a worker that is held here
    owner = fleet.wait_owner(0, 0)
    assert asyncio.run(relay(fleet, node=fleet.node_id(0), epoch=owner.epoch)) is None
    stale = asyncio.run(relay(fleet, node=fleet.node_id(0), epoch=owner.epoch + 1))
    assert isinstance(stale, StreamRefused)


@pytest.mark.holds("B-227")
@pytest.mark.cluster(frontends=1, workers=1)
def test_a_peer_without_the_clusters_secret_gets_no_link(fleet: Fleet) -> None:
    refused = asyncio.run(relay(fleet, node=fleet.node_id(0), epoch=1, secret="another secret"))
    assert refused is not None
    assert not isinstance(refused, StreamRefused), "a stranger was let in and answered"
    assert "401" in str(refused)
