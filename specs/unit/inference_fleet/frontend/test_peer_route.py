"""The peers' door: a token of this cluster for this replica, or a plain 401."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest
from specs.unit.inference_fleet.route.piped import TIMINGS, until

from inference_fleet.auth import PeerTokens
from inference_fleet.cluster import Registry, addresses
from inference_fleet.route import NoRoute, StreamParts
from inference_fleet.settings import Deadline
from inference_fleet.tunnel import DialRefused, Session, dial_websocket

from .served import served

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from inference_fleet.cluster import Owner
    from inference_fleet.tunnel import DirectWebSocket

    from .served import Served


async def knock(front: Served, token: str | None) -> DirectWebSocket:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    carrier, _ = await dial_websocket(
        f"{front.url}/api/cluster/peer", subprotocol="blackstart.peer.v1", headers=headers, timings=TIMINGS
    )
    return carrier


def tokens(instance: str, secret: str = "cluster-secret") -> PeerTokens:
    return PeerTokens(cluster_secret=secret, instance_id=instance, ttl_s=TIMINGS.peer_token_ttl_s)


@pytest.mark.holds("B-68", "B-26")
def test_only_a_token_of_this_cluster_for_this_replica_opens_the_link(url: str, tmp_path: Path) -> None:
    async def story() -> None:
        async with (
            served(url, tmp_path) as front,
            served(url, tmp_path, instance_id="x", cluster_secret="") as closed,
        ):
            now = front.replica.clock.now()
            wrong = {
                "none": None,
                "an id that is merely said": "peer",
                "another cluster's": tokens("peer", "another").issue("a", now=now),
                "another audience's": tokens("peer").issue("b", now=now),
                "an expired one": tokens("peer").issue("a", now=now - TIMINGS.peer_token_ttl_s),
                "its own": tokens("a").issue("a", now=now),
            }
            for what, token in wrong.items():
                with pytest.raises(DialRefused) as caught:
                    await knock(front, token)
                assert caught.value.status == 401, what
                message = json.loads(caught.value.body)["error"]["message"]
                assert "; try: the same BLACKSTART_CLUSTER_SECRET" in message, f"no remedy: {message}"
            with pytest.raises(DialRefused) as caught:
                await knock(closed, tokens("peer").issue("x", now=now))
            assert caught.value.status == 401, "an empty secret trusts nobody"

            carrier = await knock(front, tokens("peer").issue("a", now=now))
            session = Session(carrier, client=True, timings=TIMINGS)
            running = asyncio.create_task(session.run())
            assert len(front.replica.peer_server.sessions) == 1
            await session.close()
            await running

    asyncio.run(story())


def leaving_from(monkeypatch: pytest.MonkeyPatch, source: str) -> None:
    """Let the route to the database leave from an address, wherever the database of this run is."""
    monkeypatch.setattr(addresses, "route_source", lambda _host, _port: source)


@pytest.mark.holds("B-3", "B-249")
def test_a_replica_that_was_given_no_address_finds_one_and_its_row_tells_the_others(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leaving_from(monkeypatch, "10.1.2.3")

    async def story() -> None:
        async with (
            served(url, tmp_path, advertise_address=None) as found,
            served(url, tmp_path, instance_id="b") as given,
        ):
            await given.admin()
            told = {row["id"]: row["address"] for row in (await given.http.get("/api/instances")).json()}
            port = found.url.rpartition(":")[2]
            assert told["a"] == f"10.1.2.3:{port}", "no address for its peers"
            assert told["b"] == given.url.removeprefix("http://"), (
                "the control: what is configured is not looked for"
            )

    asyncio.run(story())


@pytest.mark.holds("B-3", "B-4", "B-249")
@pytest.mark.parametrize("configured", ["", None], ids=["set to nothing", "none to be found"])
def test_a_replica_without_an_address_is_present_serves_its_own_and_is_named_to_the_others(
    url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    configured: str | None,
) -> None:
    leaving_from(monkeypatch, "127.0.0.1")
    from .served import answer, backend, worker  # noqa: PLC0415 -- this story alone

    async def story() -> None:
        async with (
            backend(answer(b"{}")) as process,
            served(url, tmp_path, advertise_address=configured) as hidden,
            served(url, tmp_path, instance_id="b") as other,
            worker(hidden, models={"m": process}),
        ):
            await hidden.admin()
            await other.admin()
            instances = {row["id"]: row["address"] for row in (await other.http.get("/api/instances")).json()}
            assert instances["a"] == "", "a guess is no address"
            (node,) = (await other.http.get("/api/nodes")).json()
            assert (node["presence"], node["owner"], node["status"]) == ("connected", "a", "healthy")

            body = {"model": "m", "messages": []}
            assert (await hidden.http.post("/v1/chat/completions", json=body)).status_code == 200
            refused = await other.http.post("/v1/chat/completions", json=body)

            assert (refused.status_code, refused.json()["error"]["code"]) == (503, "no_route")
            assert "advertises no address" in refused.json()["error"]["message"]
            assert await other.metric('blackstart_dials_total{outcome="no-relay-path"}') == 1
            await until(lambda: "only it can reach workers=1" in caplog.text)
            assert "set to nothing, or unset and none was found" in caplog.text
            looked = "no other replica can dial this one: BLACKSTART_ADVERTISE_ADDRESS=(unset)" in caplog.text
            assert looked is (configured is None), (
                "only one that was given nothing looks, and says what it found"
            )

    asyncio.run(story())


def test_a_crowd_that_is_relayed_asks_for_its_owners_by_few_statements(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []
    owners = Registry.owners

    async def counted(registry: Registry, node_ids: Sequence[str]) -> dict[str, Owner]:
        asked.append(list(node_ids))
        return await owners(registry, node_ids)

    monkeypatch.setattr(Registry, "owners", counted)
    crowd = 50

    async def story() -> None:
        async with served(url, tmp_path) as front:

            async def one(number: int) -> None:
                with pytest.raises(NoRoute, match="no live replica holds its tunnel"):
                    await front.replica.dialer.open(
                        f"node-{number}",
                        StreamParts(tag="backend"),
                        deadline=Deadline.after(TIMINGS.request_s),
                    )

            await asyncio.gather(*(one(number) for number in range(crowd)))

    asyncio.run(story())
    assert sorted(node for nodes in asked for node in nodes) == sorted(f"node-{n}" for n in range(crowd))
    assert len(asked) <= 4, f"{len(asked)} statements for {crowd} askers who came at once"
