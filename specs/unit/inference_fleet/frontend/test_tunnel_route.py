"""The tunnel's door: who is let in, what the upgrade carries, and what a second process is told."""

from __future__ import annotations

import asyncio
import json
import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from specs.unit.inference_fleet.route.piped import TIMINGS, until
from starlette.websockets import WebSocketDisconnect

from inference_fleet.frontend import tunnel_route
from inference_fleet.frontend.tunnel_route import SUBPROTOCOL
from inference_fleet.tunnel import DialRefused, dial_websocket
from inference_fleet.tunnel.worker import dial

from .served import backend, hang, register, served, tunnel, worker

if TYPE_CHECKING:
    from pathlib import Path

    from .served import Served

BOOT = "boot-of-the-worker"


async def refusal(
    front: Served, node_id: str, credential: str, *, boot_id: str = BOOT, seen: int = 0
) -> DialRefused:
    """The plain HTTP answer to a dial that gets no upgrade."""
    with pytest.raises(DialRefused) as caught:
        await dial(
            front.url,
            node_id=node_id,
            credential=credential,
            boot_id=boot_id,
            seen_epoch=seen,
            timings=TIMINGS,
        )
    return caught.value


def code_of(refused: DialRefused) -> str:
    return str(json.loads(refused.body)["error"]["code"])


@pytest.mark.holds("B-25", "B-26")
def test_an_unauthenticated_dial_is_a_plain_401_before_any_upgrade(url: str, tmp_path: Path) -> None:
    async def story() -> None:
        async with served(url, tmp_path) as front:
            node = (await register(front, "worker-0", credential="c", boot_id=BOOT)).json()["id"]
            for node_id, credential in ((node, ""), (node, "wrong"), ("unknown", "c"), ("unknown", "")):
                refused = await refusal(front, node_id, credential)
                assert (refused.status, code_of(refused)) == (401, "unauthorized")
                message = json.loads(refused.body)["error"]["message"]
                shown = (
                    "bearer shown is not the node's" if credential else "no credential of the node was shown"
                )
                assert shown in message
                assert "; try: " in message, f"no remedy: {message}"
                assert node not in message, f"who may act on which node is told: {message}"
            plain = await front.http.get(f"/api/node/{node}/tunnel")
            assert plain.status_code == 404, "the path is a WebSocket's alone"
            assert await front.metric("blackstart_tunnels") == 0

    asyncio.run(story())


@pytest.mark.holds("B-25", "B-6")
def test_the_claim_comes_before_the_upgrade_which_carries_its_epoch(url: str, tmp_path: Path) -> None:
    async def story() -> None:
        async with backend(hang) as process, served(url, tmp_path) as front:
            await front.admin()
            async with worker(front, models={"m": process}) as held:
                row = await front.replica.db.row("SELECT owner, epoch FROM connections")
                assert row == {"owner": "a", "epoch": held.epoch}
                (node,) = (await front.http.get("/api/nodes")).json()
                assert (node["presence"], node["owner"], node["epoch"]) == ("connected", "a", held.epoch)
                assert (node["status"], node["address"], node["http_address"]) == ("healthy", "", "")
                assert await front.metric("blackstart_tunnels") == 1
                assert await front.metric('blackstart_tunnel_carrier{path="takeover"}') == 1
                held_epoch, node_id = held.epoch, held.node_id
            await until(lambda: _owner(front, ""))
            async with tunnel(
                front, node_id, "credential of worker-0", held.boot_id, {}, seen=held_epoch + 40
            ) as again:
                assert again.epoch == held_epoch + 41, "above everything the worker has seen"

    asyncio.run(story())


async def _owner(front: Served, owner: str) -> bool:
    row = await front.replica.db.row("SELECT owner, disconnected_at FROM connections")
    assert row is not None
    return bool(row["owner"] == owner and row["disconnected_at"] is not None)


def test_the_same_boot_takes_over_and_the_session_before_it_goes_away(url: str, tmp_path: Path) -> None:
    async def story() -> None:
        async with (
            served(url, tmp_path) as front,
            worker(front) as first,
            tunnel(front, first.node_id, first.credential, first.boot_id, {}, seen=first.epoch) as second,
        ):
            await until(first.run.done)
            await until(lambda: len(front.replica.adopted._tasks) == 1)  # the first one's end is recorded
            assert front.replica.table.held() == {first.node_id: second.epoch}
            assert await front.metric("blackstart_tunnel_conflicts_total") == 0
            assert not await _owner(front, ""), "the end of the older session releases only its own epoch"

    asyncio.run(story())


def test_another_boot_is_a_conflict_taken_once_then_refused_by_name(url: str, tmp_path: Path) -> None:
    async def story() -> None:
        async with (
            served(url, tmp_path) as front,
            worker(front) as first,
            tunnel(front, first.node_id, first.credential, "the-second-boot", {}, seen=0),
        ):
            await until(first.run.done)
            refused = await refusal(front, first.node_id, first.credential, boot_id="the-third-boot")
            assert (refused.status, code_of(refused)) == (409, "boot_conflict")
            assert "the-second-boot" in refused.body
            assert refused.retry_after_s is not None
            assert refused.retry_after_s >= 1
            assert await front.metric("blackstart_tunnel_conflicts_total") == 2

    asyncio.run(story())


def test_an_epoch_no_database_gave_out_is_refused_by_name(url: str, tmp_path: Path) -> None:
    async def story() -> None:
        async with served(url, tmp_path) as front:
            node = (await register(front, "worker-0", credential="c", boot_id=BOOT)).json()["id"]
            for seen in (10**15, 2**63 - 1):  # the second is the last a sequence gives out
                refused = await refusal(front, node, "c", seen=seen)
                assert (refused.status, code_of(refused)) == (409, "epoch_leap"), refused.body
                assert refused.retry_after_s is not None

    asyncio.run(story())


def test_an_introduction_that_is_none_is_named(url: str, tmp_path: Path) -> None:
    nonsense = {
        "X-Blackstart-Boot": ("short", "x/y/x/y/x/y"),
        "X-Blackstart-Seen-Epoch": ("-1", "x", str(2**63), "9" * 40),
    }

    async def story() -> None:
        async with served(url, tmp_path) as front:
            node = (await register(front, "worker-0", credential="c", boot_id=BOOT)).json()["id"]
            good = {"Authorization": "Bearer c", "X-Blackstart-Boot": BOOT, "X-Blackstart-Seen-Epoch": "0"}
            attempts = [{**good, header: value} for header, values in nonsense.items() for value in values]
            for headers, subprotocol in [(bad, SUBPROTOCOL) for bad in attempts] + [(good, "something.else")]:
                with pytest.raises(DialRefused) as caught:
                    await dial_websocket(
                        f"{front.url}/api/node/{node}/tunnel",
                        subprotocol=subprotocol,
                        headers=headers,
                        timings=TIMINGS,
                    )
                assert (caught.value.status, code_of(caught.value)) == (400, "invalid"), headers

    asyncio.run(story())


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (WebSocketDisconnect(1006), "the worker left before its tunnel was up"),
        (RuntimeError("no transport is left"), "no transport is left"),
    ],
    ids=["left", "failed"],
)
def test_an_upgrade_that_fails_gives_its_claim_back(
    url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    *,
    wrong: Exception,
    told: str,
) -> None:
    claimed: list[dict[str, Any] | None] = []

    async def story() -> None:
        async with served(url, tmp_path) as front:
            node = (await register(front, "worker-0", credential="c", boot_id=BOOT)).json()["id"]

            def fail(*_: object, **__: object) -> None:
                raise wrong

            monkeypatch.setattr(tunnel_route, "carrier_of", fail)
            dialled = await dial(
                front.url, node_id=node, credential="c", boot_id=BOOT, seen_epoch=0, timings=TIMINGS
            )
            await until(lambda: told in caplog.text)
            claimed.append(await front.replica.db.row("SELECT owner, epoch FROM connections"))
            dialled.carrier.abort()
            assert claimed == [{"owner": "", "epoch": dialled.epoch}], "nobody holds it, and nobody else may"
            # the control: with the same hands it is held
            monkeypatch.undo()
            async with tunnel(front, node, "c", BOOT, {}, seen=dialled.epoch):
                assert not await _owner(front, "")

    caplog.set_level(logging.INFO)
    asyncio.run(story())


def test_a_replaced_credential_cuts_the_live_tunnel_at_the_next_beat(url: str, tmp_path: Path) -> None:
    async def story() -> None:
        async with served(url, tmp_path) as front, worker(front, "one") as cut, worker(front, "two") as kept:
            await front.replica.db.change(
                "UPDATE nodes SET credential_version = credential_version + 1 WHERE id = %(id)s",
                {"id": cut.node_id},
            )
            await until(cut.run.done)
            # this side may hear of the end it made a moment after the worker does
            await until(lambda: cut.node_id not in front.replica.table.held())
            assert front.replica.table.held() == {kept.node_id: kept.epoch}

    asyncio.run(story())


def test_a_status_that_cannot_be_written_ends_no_tunnel(
    url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        async with served(url, tmp_path) as front:

            async def fails(_node: str) -> None:
                raise ValueError("a status of a newer release")

            front.replica.roster.tunnel_arrived = fails  # type: ignore[method-assign,assignment]  # the fault
            async with worker(front) as held:
                await until(lambda: "a status of a newer release" in caplog.text)
                _, goes_on = await asyncio.wait([held.run], timeout=TIMINGS.instance_beat_s)
                assert goes_on, "a tunnel ended by its status"
                assert front.replica.table.held() == {held.node_id: held.epoch}

    asyncio.run(story())


def test_dials_before_authentication_are_few_and_short(url: str, tmp_path: Path) -> None:
    async def story() -> None:
        quick = replace(TIMINGS, handshake_s=TIMINGS.instance_beat_s)
        async with served(url, tmp_path, timings=quick) as front:
            node = (await register(front, "worker-0", credential="c", boot_id=BOOT)).json()["id"]
            async with front.replica.db.transaction() as conn:
                await conn.execute(
                    "LOCK TABLE nodes IN ACCESS EXCLUSIVE MODE"
                )  # authentication cannot finish
                slow = await refusal(front, node, "c")
                assert (slow.status, code_of(slow)) == (503, "unavailable")
                front.replica.handshakes.at_once = 1
                waiting = asyncio.create_task(refusal(front, node, "c"))
                await until(lambda: front.replica.handshakes.now == 1)
                crowded = await refusal(front, node, "c")
                assert (crowded.status, code_of(crowded)) == (503, "too_many_handshakes")
                await waiting
            assert front.replica.handshakes.now == 0

    asyncio.run(story())


def test_a_replica_that_is_leaving_takes_no_tunnel(url: str, tmp_path: Path) -> None:
    async def story() -> None:
        async with served(url, tmp_path) as front:
            node = (await register(front, "worker-0", credential="c", boot_id=BOOT)).json()["id"]
            await front.replica.table.go_away("stopping")
            refused = await refusal(front, node, "c")
            assert (refused.status, code_of(refused)) == (503, "draining")

    asyncio.run(story())
