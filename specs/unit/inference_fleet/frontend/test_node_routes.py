"""Registration and heartbeats over HTTP: who may, what is answered, and that a worker speaks for itself alone."""

from __future__ import annotations

import asyncio
import hashlib
from typing import TYPE_CHECKING, Any

import pytest
from specs.unit.inference_fleet.route.piped import until

from blackstart.fleet.http import error_code

from .served import REGISTRATION, backend, hang, register, served, worker

if TYPE_CHECKING:
    from pathlib import Path

BOOT = "boot-of-the-worker"
BODY: dict[str, Any] = {
    "name": "worker-0",
    "node_type": "backend",
    "boot_id": BOOT,
    "credential_sha256": hashlib.sha256(b"credential").hexdigest(),
}
TOKEN = {"Authorization": f"Bearer {REGISTRATION}"}


@pytest.mark.holds("B-155", "B-154")
def test_registration_is_201_and_keeps_the_id_of_a_name_at_every_replica(url: str, tmp_path: Path) -> None:
    async def story() -> None:
        async with served(url, tmp_path) as one, served(url, tmp_path, instance_id="b") as two:
            first = await register(one, "worker-0", credential="c", boot_id=BOOT)
            again = await register(two, "worker-0", credential="c", boot_id="another-boot")
            other = await register(two, "worker-1", credential="c", boot_id=BOOT)
            assert [answer.status_code for answer in (first, again, other)] == [201, 201, 201]
            assert set(first.json()) == {"id", "name", "node_type", "status", "created_at"}
            assert first.json()["id"] == again.json()["id"] != other.json()["id"]

    asyncio.run(story())


def test_a_used_name_with_another_credential_is_409_and_says_when_to_return(url: str, tmp_path: Path) -> None:
    async def story() -> None:
        async with served(url, tmp_path) as front:
            await register(front, "worker-0", credential="one", boot_id=BOOT)
            taken = await register(front, "worker-0", credential="two", boot_id=BOOT)
            assert (taken.status_code, taken.json()["error"]["code"]) == (409, "name_taken")
            assert 1 <= int(taken.headers["retry-after"]) <= front.replica.settings.timings.heartbeat_stale_s

    asyncio.run(story())


@pytest.mark.holds("B-26")
def test_without_the_registration_token_nobody_registers_and_an_empty_one_is_nobodys(
    url: str, tmp_path: Path
) -> None:
    async def story() -> None:
        async with (
            served(url, tmp_path) as front,
            served(url, tmp_path, instance_id="b", registration_token="") as closed,
        ):
            for shown in ("", "Bearer", "Bearer wrong", f"Basic {REGISTRATION}"):
                headers = {"Authorization": shown} if shown else {}
                for asked in (front, closed):
                    refused = await asked.http.post("/api/node/register", json=BODY, headers=headers)
                    assert refused.status_code == 401, f"registered with {shown!r}"
                    error = refused.json()["error"]
                    assert error["code"] == "unauthorized"
                    assert "registration token" in error["message"]
                    assert "; try: " in error["message"], f"no remedy: {error['message']}"
                    assert "BLACKSTART_REGISTRATION_TOKEN" in error["message"]
                    for said in (REGISTRATION, "wrong"):
                        assert said not in error["message"], f"a secret is told: {error['message']}"
            assert (await closed.http.post("/api/node/register", json=BODY, headers=TOKEN)).status_code == 401
            assert (await front.http.post("/api/node/register", json=BODY, headers=TOKEN)).status_code == 201

    asyncio.run(story())


def test_a_name_that_is_none_is_refused(url: str, tmp_path: Path) -> None:
    async def story() -> None:
        async with served(url, tmp_path) as front:
            for name in (
                "",
                "x" * 129,
                "x" * 300,
                "a/b",
                "../a",
                "a\0b",
                "a\u202eb",
                "-a",
                "a b",
                "ä",
                "a\n",
            ):
                reply = await front.http.post(
                    "/api/node/register", json={**BODY, "name": name}, headers=TOKEN
                )
                assert (reply.status_code, reply.json()["error"]["code"]) == (400, "invalid"), repr(name)
            control = await front.http.post(
                "/api/node/register", json={**BODY, "name": "x" * 128}, headers=TOKEN
            )
            assert control.status_code == 201

    asyncio.run(story())


def test_text_that_cannot_be_kept_is_refused_wherever_it_stands(url: str, tmp_path: Path) -> None:
    plain = {"name": "babbler", "port": 5000, "process_key": "key", "state": "ready"}

    async def story() -> None:
        async with served(url, tmp_path) as front:
            node = (await register(front, "worker-0", credential="c", boot_id=BOOT)).json()["id"]
            at = f"/api/node/{node}/heartbeat"
            mine = {"Authorization": "Bearer c"}
            for bad in ("a\0b", "a\nb", "a\n", "a\u202eb", "\u2066a", "a\u200f"):
                for body in ({"labels": {bad: "x"}}, {"labels": {"x": bad}}, {"capacity": {bad: 1}}):
                    reply = await front.http.post(
                        "/api/node/register", json={**BODY, "name": "worker-1", **body}, headers=TOKEN
                    )
                    assert (reply.status_code, error_code(reply.json())) == (400, "invalid"), repr(body)
                for model in ({**plain, "name": bad}, {**plain, "process_key": bad}):
                    beat = {"boot_id": BOOT, "models": [model]}
                    reply = await front.http.post(at, json=beat, headers=mine)
                    assert (reply.status_code, error_code(reply.json())) == (400, "invalid"), repr(model)
            named = await front.http.post(
                "/api/node/register", json={**BODY, "name": "worker-1\n"}, headers=TOKEN
            )
            assert named.status_code == 400, "a line feed ends no name"
            beat = {"boot_id": BOOT, "models": [{**plain, "name": "modèle 7", "process_key": "clé"}]}
            assert (await front.http.post(at, json=beat, headers=mine)).status_code == 200, "the control"

    asyncio.run(story())


def test_a_worker_acts_on_its_own_node_only(url: str, tmp_path: Path) -> None:
    async def story() -> None:
        async with served(url, tmp_path) as front:
            mine = (await register(front, "mine", credential="mine", boot_id=BOOT)).json()["id"]
            other = (await register(front, "other", credential="other", boot_id=BOOT)).json()["id"]
            beat = {"boot_id": BOOT, "models": []}
            for act in ("heartbeat", "drain", "resume", "deregister"):
                for node, credential in ((other, "mine"), (mine, "wrong"), ("unknown", "mine")):
                    refused = await front.http.post(
                        f"/api/node/{node}/{act}",
                        json=beat,
                        headers={"Authorization": f"Bearer {credential}"},
                    )
                    assert refused.status_code == 401, f"{act} on {node} with {credential!r}"
                allowed = await front.http.post(
                    f"/api/node/{mine}/{act}", json=beat, headers={"Authorization": "Bearer mine"}
                )
                assert allowed.status_code == 200, f"the control: {act} {allowed.text}"

    asyncio.run(story())


def test_a_heartbeat_of_a_replaced_boot_is_told_so(url: str, tmp_path: Path) -> None:
    async def story() -> None:
        async with served(url, tmp_path) as front:
            node = (await register(front, "worker-0", credential="c", boot_id=BOOT)).json()["id"]
            await register(front, "worker-0", credential="c", boot_id="a-later-boot")
            late = await front.http.post(
                f"/api/node/{node}/heartbeat", json={"boot_id": BOOT}, headers={"Authorization": "Bearer c"}
            )
            assert (late.status_code, late.json()["error"]["code"]) == (409, "boot_superseded")

    asyncio.run(story())


def test_a_deregistered_node_loses_its_tunnel_and_is_explained_afterwards(url: str, tmp_path: Path) -> None:
    async def story() -> None:
        async with (
            backend(hang) as process,
            served(url, tmp_path) as front,
            worker(front, models={"m": process}) as held,
        ):
            await front.admin()
            await front.http.post(
                f"/api/node/{held.node_id}/deregister", headers={"Authorization": f"Bearer {held.credential}"}
            )
            await until(held.run.done)
            assert (await front.http.get(f"/api/nodes/{held.node_id}")).status_code == 404
            explained = (await front.http.get(f"/api/nodes/{held.node_id}/explain")).json()
            assert explained["node"] is None
            assert explained["reaps"][0]["action"] == "deregistered"

    asyncio.run(story())
