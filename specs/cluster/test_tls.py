"""A fleet of real processes that speaks TLS: workers dial it, replicas relay over it, and who is not believed serves nobody."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

from blackstart.cluster.waiting import eventually
from blackstart.fleet.strangers import stranger
from blackstart.net.certificates import Authority

if TYPE_CHECKING:
    from pathlib import Path

    from blackstart.fleet import Fleet

pytestmark = pytest.mark.needs("openssl")

EMPTY_HANDED = b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


@pytest.mark.holds("T-63")
@pytest.mark.cluster(frontends=2, workers=1, tls=True, spread=True)
def test_a_fleet_on_tls_serves_and_relays_and_answers_nobody_in_the_open(fleet: Fleet) -> None:
    local, relayed = fleet.chat(via=0), fleet.chat(via=1, stream=True)
    assert (local.ok, local.route) == (True, "local"), str(local)
    assert (relayed.ok, relayed.route) == (True, "relayed"), str(relayed)
    assert fleet.metrics(0).value("blackstart_tunnel_carrier", path="takeover") == 1
    rows = fleet.get("/api/instances", via=0).json()
    assert [row["address"] for row in rows] == [node.url for node in fleet.frontends]
    assert all(row["address"].startswith("https://") for row in rows)
    place = fleet.frontend(0).place
    with socket.create_connection((place.host, place.port), timeout=fleet.timings.handshake_s) as plain:
        plain.sendall(EMPTY_HANDED)
        assert b"HTTP/" not in plain.recv(4096)


@pytest.mark.holds("T-63")
@pytest.mark.cluster(frontends=1, workers=1, tls=True, spread=True)
def test_a_worker_that_does_not_believe_its_frontend_stays_away_and_says_why(
    fleet: Fleet, tmp_path: Path
) -> None:
    within = fleet.timings.start_s
    other = Authority(tmp_path / "other")
    with stranger(fleet, "worker-9", SSL_CERT_FILE=str(other.cert)) as wary:
        said = r"not registered: https://\S+: its certificate is not believed: .*; try: SSL_CERT_FILE"
        first = wary.log.wait_for(said, within=within, watch=wary)
        # it asks again, and as warily
        wary.log.wait_for(said, after=wary.log.mark(), within=within, watch=wary)
        assert "http://" not in first.string
        assert fleet.roster(via=0).names == ("worker-0",)
    # the control: the same worker with the fleet's own authority
    with stranger(fleet, "worker-9") as trusting:
        eventually(
            lambda: fleet.roster(via=0).value("worker-9", "presence"),
            "connected",
            within=within,
            watch=[trusting, *fleet.watch],
        )
