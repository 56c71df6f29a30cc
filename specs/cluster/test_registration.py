"""Who may be which node: many at once, twice the same, a stranger under a used name, and those who show nothing."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import http.client
import json
import secrets
import socket
import time
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from blackstart.cluster.waiting import consistently, eventually
from blackstart.fleet.http import client_of, error_message
from blackstart.fleet.strangers import stranger
from inference_fleet.frontend.peer_dial import PATH as PEER_PATH
from inference_fleet.frontend.peer_dial import SUBPROTOCOL as PEER_SUBPROTOCOL

if TYPE_CHECKING:
    import httpx2

    from blackstart.fleet import Fleet

FAILED = "not registered:"
WAITING = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND wait_event_type = 'Lock' AND strpos(query, 'INSERT INTO nodes') > 0
"""


@pytest.mark.holds("B-191")
# who waits at the lock until the last has come must not give up meanwhile, however slowly eight processes start
@pytest.mark.cluster(
    frontends=2,
    workers=0,
    timings_s={"handshake_s": 30.0, "database_connect_s": 30.0, "database_statement_s": 30.0},
)
def test_eight_workers_that_register_in_the_same_moment_are_eight_nodes(fleet: Fleet) -> None:
    names = [f"worker-{index}" for index in range(8)]
    # nobody gets further than the lock, so that what happens after it happens at once
    with psycopg.connect(fleet.database_url) as holder, contextlib.ExitStack() as stack:
        holder.execute("LOCK TABLE nodes IN SHARE ROW EXCLUSIVE MODE")
        workers = [stack.enter_context(stranger(fleet, name)) for name in names]
        # the control of "no failure": a ninth asks at an address where nobody listens
        silent = stack.enter_context(socket.socket())
        silent.bind(("127.0.0.1", 0))
        nowhere = f"http://127.0.0.1:{silent.getsockname()[1]}"
        astray = stack.enter_context(stranger(fleet, "astray", BLACKSTART_FRONTEND_URLS=nowhere))
        within = fleet.timings.start_s
        eventually(lambda: _waiting(fleet), 8, within=within, watch=[*workers, *fleet.frontends])
        assert fleet.records.rows("SELECT count(*) FROM nodes")[0]["count"] == 0
        holder.rollback()
        eventually(lambda: fleet.roster(via=1).names, tuple(names), within=within, watch=workers)
        eventually(
            lambda: {entry.presence for entry in fleet.roster(via=0).nodes},
            {"connected"},
            within=within,
            watch=workers,
        )
        look = fleet.roster(via=0)
        assert len(look.ids) == 8
        assert look.ids == fleet.roster(via=1).ids
        assert len({entry.raw["epoch"] for entry in look.nodes}) == 8
        logs = "".join(worker.log.text() for worker in workers)
        assert "Traceback" not in logs
        # who failed and asked again would be a node as well
        astray.log.wait_for(FAILED, within=within)
        failed = [line for line in logs.splitlines() if FAILED in line]
        assert not failed, f"{len(failed)} registrations failed, the first: {failed[0]}"
    for frontend in fleet.frontends:
        assert "unexpected failure" not in frontend.log.text()


@pytest.mark.cluster(frontends=1, workers=1)
def test_a_used_name_with_another_credential_is_refused_while_its_holder_lives_and_taken_over_when_it_is_stale(
    fleet: Fleet,
) -> None:
    holder = fleet.node_id(0)
    own = (fleet.worker(0).place.data_dir / "node-credential").read_text().strip()
    boot = fleet.roster(via=0).value("worker-0", "boot_id")
    assert _beat(fleet, holder, credential=own, boot=boot).status_code == 200  # the control for what follows
    refused = _register(fleet, "worker-0")
    assert refused.status_code == 409
    assert refused.json()["error"]["code"] == "name_taken"
    assert holder in refused.json()["error"]["message"]
    assert int(refused.headers["Retry-After"]) >= 1
    assert fleet.status(0, via=0) == "healthy", "the refused stranger changed the holder"
    fleet.worker(0).kill()
    timings = fleet.timings
    within = timings.heartbeat_stale_s + timings.instance_liveness_s + timings.health_tick_s
    taken = eventually(
        lambda: _register(fleet, "worker-0"),
        lambda answer: answer.status_code == 201,
        within=within,
        every=timings.heartbeat_s,
    )
    assert taken.json()["id"] == holder
    reaps = fleet.get("/api/reaps", via=0).json()
    assert any("credential" in reap["action"] and reap["node_id"] == holder for reap in reaps), reaps
    # the one whose credential was replaced is nobody now
    assert _beat(fleet, holder, credential=own, boot=boot).status_code == 401


# long enough for a start on a slow machine, so that the old self is not stale before the new one first asks
@pytest.mark.cluster(frontends=1, workers=1, timings_s={"heartbeat_stale_s": 6.0})
def test_a_worker_restarted_with_its_credential_is_the_same_node_and_one_without_it_waits_for_its_old_self(
    fleet: Fleet,
) -> None:
    first = fleet.node_id(0)
    fleet.worker(0).restart()
    fleet.wait_ready()
    assert fleet.roster(via=0).ids == {first}
    # cold: the credential is gone, so it is a stranger under a used name until its old self is stale
    fleet.worker(0).restart(cold=True)
    fleet.wait_ready()
    assert fleet.roster(via=0).ids == {first}
    assert fleet.chat(via=0).ok
    fleet.worker(0).log.wait_for("name_taken", within=fleet.timings.heartbeat_s)


@pytest.mark.holds("B-90")
@pytest.mark.cluster(frontends=1, workers=1)
def test_a_worker_told_to_do_without_its_tunnel_never_becomes_visible(fleet: Fleet) -> None:
    with stranger(fleet, "worker-9", BLACKSTART_TUNNEL="false") as blind:
        ended = blind.wait(within=fleet.timings.start_s)
        assert ended is not None, "it runs"
        assert ended.code == 2
        assert "BLACKSTART_TUNNEL=false" in blind.log.text()
        consistently(lambda: fleet.roster(via=0).names, ("worker-0",), during=2 * fleet.timings.heartbeat_s)
    # the control: without that word the same command registers
    with stranger(fleet, "worker-9") as seeing:
        names = ("worker-0", "worker-9")
        eventually(lambda: fleet.roster(via=0).names, names, within=fleet.timings.start_s, watch=[seeing])


@pytest.mark.holds("B-25")
@pytest.mark.cluster(frontends=1, workers=1)
def test_a_dial_without_the_nodes_credential_is_401_before_any_upgrade(fleet: Fleet) -> None:
    epoch = fleet.wait_owner(0, 0).epoch
    for credential in (None, "", "x", "Ünicode-secret", "y" * 5000, fleet.secrets.registration_token):
        status, headers = _dial(fleet, fleet.node_id(0), credential)
        assert status == 401, credential
        assert "upgrade" not in {name.lower() for name in headers}
    assert fleet.wait_owner(0, 0).epoch == epoch, "a refused dial disturbed the tunnel"
    # the control: the same request with the node's own credential, by the node's own boot, is upgraded
    own = (fleet.worker(0).place.data_dir / "node-credential").read_text().strip()
    boot = fleet.roster(via=0).value("worker-0", "boot_id")
    status, headers = _dial(fleet, fleet.node_id(0), own, boot=boot)
    assert status == 101, headers
    assert int({name.lower(): value for name, value in headers.items()}["x-blackstart-epoch"]) > epoch


@pytest.mark.cluster(frontends=1, workers=1)
def test_a_replica_without_secrets_authorises_nobody(fleet: Fleet) -> None:
    node = fleet.frontend(0)
    # the controls: with its secrets it does, for a token that is made by hand as well
    assert _register(fleet, "somebody").status_code == 201
    assert _ask_as_peer(fleet, _peer_token(fleet, secret=fleet.secrets.cluster)) == 101
    node.kill()
    node.set_env(BLACKSTART_REGISTRATION_TOKEN="", BLACKSTART_CLUSTER_SECRET="")
    node.start()
    for token in (None, "x", fleet.secrets.registration_token):
        refused = _register(fleet, "somebody-else", token=token)
        assert refused.status_code == 401
        assert "no registration token" in error_message(refused.json()), refused.text
        assert "; try: set BLACKSTART_REGISTRATION_TOKEN" in error_message(refused.json()), refused.text
    for shown in ("", " "):  # by hand: a client library refuses to send such a header
        assert _by_hand(fleet, "POST", "/api/node/register", {"Authorization": f"Bearer {shown}"})[0] == 401
    assert _ask_as_peer(fleet, None) == 401
    for secret in (fleet.secrets.cluster, "", " "):
        assert _ask_as_peer(fleet, _peer_token(fleet, secret=secret)) == 401, f"signed under {secret!r}"
    assert "somebody-else" not in fleet.roster(via=0).names


def _waiting(fleet: Fleet) -> int:
    return int(fleet.records.rows(WAITING)[0]["count"])


_OWN = object()


def _register(fleet: Fleet, name: str, *, token: Any = _OWN) -> httpx2.Response:
    shown = fleet.secrets.registration_token if token is _OWN else token
    body = {
        "name": name,
        "node_type": "backend",
        "boot_id": secrets.token_hex(8),
        "credential_sha256": hashlib.sha256(secrets.token_bytes(32)).hexdigest(),
        "capacity": {},
        "labels": {},
    }
    headers = {} if shown is None else {"Authorization": f"Bearer {shown}"}
    with client_of(fleet.frontend(0).url, within=fleet.timings.handshake_s) as client:
        return client.post("/api/node/register", json=body, headers=headers)


def _beat(fleet: Fleet, node_id: str, *, credential: str, boot: str) -> httpx2.Response:
    with client_of(fleet.frontend(0).url, within=fleet.timings.handshake_s) as client:
        body = {"boot_id": boot, "models": [], "capacity": {}}
        return client.post(
            f"/api/node/{node_id}/heartbeat", json=body, headers={"Authorization": f"Bearer {credential}"}
        )


def _peer_token(fleet: Fleet, *, secret: str) -> str:
    """What a peer shows, signed by hand: `PeerTokens` makes none without a secret, and a stranger needs no `PeerTokens`."""
    expires = time.time() + fleet.timings.peer_token_ttl_s
    claims = json.dumps({"instance": "frontend-9", "audience": "frontend-0", "expires": expires}).encode()
    subkey = hmac.digest(secret.encode(), b"blackstart peer link v1", "sha256")
    signature = hmac.digest(subkey, claims, "sha256")
    return ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in (claims, signature))


def _ask_as_peer(fleet: Fleet, token: str | None) -> int:
    """The status of an upgrade to a peer link."""
    status, _ = _dial(fleet, "", token, path=PEER_PATH, subprotocol=PEER_SUBPROTOCOL)
    return status


def _dial(
    fleet: Fleet,
    node_id: str,
    credential: str | None,
    *,
    path: str | None = None,
    subprotocol: str = "blackstart.tunnel.v1",
    boot: str | None = None,
) -> tuple[int, dict[str, str]]:
    """An upgrade request: the status and headers of whatever answers it."""
    headers = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
        "Sec-WebSocket-Protocol": subprotocol,
        "X-Blackstart-Boot": boot or secrets.token_hex(8),
        "X-Blackstart-Seen-Epoch": "0",
    }
    if credential is not None:
        headers["Authorization"] = f"Bearer {credential}".encode().decode("latin-1")
    return _by_hand(fleet, "GET", path or f"/api/node/{node_id}/tunnel", headers)


def _by_hand(fleet: Fleet, method: str, path: str, headers: dict[str, str]) -> tuple[int, dict[str, str]]:
    place, within = fleet.frontend(0).place, fleet.timings.handshake_s
    with contextlib.closing(http.client.HTTPConnection(place.host, place.port, timeout=within)) as connection:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        answer.read()
        return answer.status, dict(answer.getheaders())


@pytest.mark.holds("B-180")
@pytest.mark.cluster(frontends=1, workers=1)
def test_a_worker_that_has_started_answers_before_it_is_registered_and_is_ready_only_after(
    fleet: Fleet,
) -> None:
    rule = fleet.balancer.block("^/api/node/register$")
    within = fleet.timings.start_s
    with stranger(fleet, "worker-9") as started:
        base = f"http://127.0.0.1:{int(started.environ['BLACKSTART_PORT_BASE']) - 1}"

        def page(path: str) -> tuple[int, str]:
            with client_of(base, within=fleet.timings.handshake_s) as client:
                answer = client.get(path)
            return answer.status_code, answer.text

        eventually(lambda: page("/healthz")[0], 200, within=within, watch=[started])
        status, why = page("/readyz")
        assert status == 503, "it calls itself ready and no frontend knows it"
        assert "not registered yet" in why
        assert fleet.roster(via=0).names == ("worker-0",)
        # the control: what it waits for is its registration, and readiness waits with it
        assert fleet.balancer.lift(rule) >= 1
        eventually(lambda: page("/readyz")[0], 200, within=within, watch=[started])
        assert fleet.roster(via=0).names == ("worker-0", "worker-9")
