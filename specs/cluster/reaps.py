"""That nothing was reaped, which a journal nobody writes to says as well: so a node that goes must be seen in it."""

from __future__ import annotations

import hashlib
import secrets
from typing import TYPE_CHECKING, Any

from blackstart.fleet.http import client_of, json_of

if TYPE_CHECKING:
    from blackstart.fleet import Fleet

_NAME = "only-made-to-go"


def nothing_was_reaped(fleet: Fleet) -> None:
    """Every replica's journal is empty; the control: a node that is deregistered appears in each, and it alone."""
    replicas = range(len(fleet.frontends))
    for via in replicas:
        assert _journal(fleet, via=via) == [], f"frontend-{via} tells of something reaped"
    node = _register_and_leave(fleet)
    for via in replicas:
        told = [(reap["node_id"], reap["action"]) for reap in _journal(fleet, via=via)]
        assert told == [(node, "deregistered")], f"frontend-{via} would not have told of anything reaped"


def _journal(fleet: Fleet, *, via: int) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json_of(fleet.get("/api/reaps", via=via), 200)
    return rows


def _register_and_leave(fleet: Fleet) -> str:
    """A node of no process's: in the roster, and out of it by its own word."""
    credential = secrets.token_hex(32)
    body = {
        "name": _NAME,
        "node_type": "backend",
        "boot_id": secrets.token_hex(8),
        "credential_sha256": hashlib.sha256(credential.encode()).hexdigest(),
        "capacity": {},
        "labels": {},
    }
    with client_of(fleet.frontend(0).url, within=fleet.timings.request_s) as client:
        token = {"Authorization": f"Bearer {fleet.secrets.registration_token}"}
        node = str(json_of(client.post("/api/node/register", json=body, headers=token), 201)["id"])
        own = {"Authorization": f"Bearer {credential}"}
        json_of(client.post(f"/api/node/{node}/deregister", headers=own), 200)
    return node
