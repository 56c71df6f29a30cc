"""Replicas that speak TLS themselves: chats pass and are relayed, and a peer is believed by its certificate alone."""

from __future__ import annotations

import asyncio
import json
import ssl
from typing import TYPE_CHECKING, Any

import pytest

from blackstart.net.certificates import Authority
from inference_fleet.cluster import addresses

from .served import answer, backend, served, worker

if TYPE_CHECKING:
    from pathlib import Path

    from .served import Served

pytestmark = pytest.mark.needs("openssl")

ASK: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
REPLY = json.dumps({"choices": [{"message": {"content": "hello yourself" * 1000}}]}).encode()
NAME = "replica.fleet.test"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def tls(authority: Authority) -> dict[str, Any]:
    """The settings of a replica with a certificate for the loopback, whose peers have one of the same authority."""
    shown = authority.issue("replica", hosts=["127.0.0.1"])
    return {"tls_cert_file": shown.cert, "tls_key_file": shown.key, "peer_ca_file": authority.cert}


@pytest.mark.parametrize("secure", [True, False])
def test_a_session_cookie_over_tls_is_sent_over_nothing_else(
    url: str,
    tmp_path: Path,
    tls: dict[str, Any],
    secure: bool,  # noqa: FBT001 -- parametrised
) -> None:
    async def story() -> None:
        async with served(url, tmp_path, **(tls if secure else {})) as front:
            who = {"email": "admin@example.org", "password": "correct horse"}
            for path in ("/api/auth/register", "/api/auth/login"):
                said = await front.http.post(path, json=who, headers={"X-Forwarded-Proto": "http"})
                flags = {part.strip().lower() for part in said.headers["set-cookie"].split(";")[1:]}
                assert ("secure" in flags) is secure, f"{path}: the cookie's flags are {flags}"

    asyncio.run(story())


async def relayed(owner: Served, other: Served) -> None:
    """A chat at each of two replicas, of whose tunnel one holds."""
    async with backend(answer(REPLY)) as process, worker(owner, models={"m": process}):
        for front, route in ((owner, "local"), (other, "relayed")):
            await front.admin()
            said = await front.http.post("/v1/chat/completions", json=ASK)
            assert (said.status_code, said.headers.get("x-blackstart-route")) == (200, route), said.text
            assert said.content == REPLY
        assert await owner.metric('blackstart_tunnel_carrier{path="takeover"}') == 1


def test_a_chat_is_relayed_between_replicas_that_speak_tls_and_the_row_says_so(
    url: str, tmp_path: Path, tls: dict[str, Any]
) -> None:
    async def story() -> None:
        async with (
            served(url, tmp_path, **tls) as owner,
            served(url, tmp_path, instance_id="b", **tls) as other,
        ):
            await relayed(owner, other)
            rows = (await owner.http.get("/api/instances")).json()
            assert [row["address"] for row in rows] == [owner.url, other.url]
            assert all(row["address"].startswith("https://") for row in rows)

    asyncio.run(story())


def test_an_address_that_a_replica_with_tls_found_itself_says_so_too(
    url: str, tmp_path: Path, tls: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(addresses, "route_source", lambda _host, _port: "10.1.2.3")

    async def story() -> None:
        async with served(url, tmp_path, advertise_address=None, **tls) as front:
            await front.admin()
            (row,) = (await front.http.get("/api/instances")).json()
            port = front.url.rpartition(":")[2]
            assert row["address"] == f"https://10.1.2.3:{port}", "its peers would dial it in the open"

    asyncio.run(story())


def test_a_replica_without_tls_and_one_with_it_relay_for_each_other(
    url: str, tmp_path: Path, tls: dict[str, Any], authority: Authority
) -> None:
    async def story() -> None:
        async with (
            served(url, tmp_path, **tls) as secret,
            served(url, tmp_path, instance_id="b", peer_ca_file=authority.cert) as plain,
        ):
            await relayed(secret, plain)
            await relayed(plain, secret)
            rows = (await plain.http.get("/api/instances")).json()
            assert [row["address"] for row in rows] == [secret.url, plain.url.removeprefix("http://")]

    asyncio.run(story())


@pytest.mark.parametrize(
    ("hosts", "changes", "said"),
    [
        ([NAME], {"peer_server_name": NAME}, ""),
        ([NAME], {}, "certificate is not valid for '127.0.0.1'; try: BLACKSTART_PEER_CA_FILE"),
        (["127.0.0.1"], {"peer_ca_file": None}, "issuer certificate; try: BLACKSTART_PEER_CA_FILE"),
    ],
)
def test_a_peer_is_believed_by_the_name_that_is_expected_and_else_cannot_be_reached(
    url: str,
    tmp_path: Path,
    tls: dict[str, Any],
    authority: Authority,
    hosts: list[str],
    changes: dict[str, Any],
    said: str,
) -> None:
    shown = authority.issue("peer", hosts=hosts)

    async def story() -> None:
        mine = {**tls, "tls_cert_file": shown.cert, "tls_key_file": shown.key}
        async with (
            served(url, tmp_path, trust=peer_of(authority, hosts), **mine) as owner,
            served(
                url, tmp_path, instance_id="b", trust=peer_of(authority, ["127.0.0.1"]), **{**tls, **changes}
            ) as other,
            backend(answer(REPLY)) as process,
            worker(owner, models={"m": process}),
        ):
            await other.admin()
            answered = await other.http.post("/v1/chat/completions", json=ASK)
            if not said:
                assert answered.content == REPLY
                return
            assert answered.status_code == 503
            assert said in answered.text, answered.text
            assert len(owner.replica.peer_server.sessions) == 0

    asyncio.run(story())


def peer_of(authority: Authority, hosts: list[str]) -> ssl.SSLContext:
    """Who believes the authority on any name, as a spec's own client that dials by address may."""
    context = ssl.create_default_context(cafile=authority.cert)
    context.check_hostname = "127.0.0.1" in hosts
    return context
