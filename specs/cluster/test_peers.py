"""Two replicas that cannot reach each other, while both reach the database and the worker is well."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from blackstart.cluster.waiting import consistently
from blackstart.core.fault import FaultNotConfirmed

from .reaps import nothing_was_reaped

if TYPE_CHECKING:
    from blackstart.fleet import Fleet


@pytest.mark.cluster(frontends=2, workers=1, peer_links=True)
def test_a_cut_between_replicas_fails_relayed_requests_by_name_and_is_no_verdict_on_the_worker(
    fleet: Fleet,
) -> None:
    owner = fleet.wait_owner(0, 0)
    assert fleet.chat(via=1).route == "relayed"  # the control, and a link that is live when it is cut
    cut = fleet.cut_peer(0, 1)
    failed = fleet.chat(via=1)
    assert (failed.status, failed.error) == (503, "no_route"), str(failed)
    assert "replica frontend-0" in failed.why, failed.why
    assert "does not answer" in failed.why, failed.why
    cut.confirm()

    def told() -> list[str]:
        """What each replica says of the worker, just after one more request could not reach it."""
        error = fleet.chat(via=1, max_tokens=1).error
        return [
            error,
            *(fleet.presence(0, via=via) for via in (0, 1)),
            *(fleet.status(0, via=via) for via in (0, 1)),
        ]

    # it stays so for longer than the slowest reaction to a worker that is really gone
    window = fleet.timings.offline_within_s + fleet.timings.instance_liveness_s
    unharmed = ["no_route", "connected", "connected", "healthy", "healthy"]
    consistently(told, unharmed, during=window, watch=fleet.watch)
    nothing_was_reaped(fleet)
    local = fleet.chat(via=0)
    assert local.ok, str(local)
    assert local.route == "local"
    fleet.heal_peer(0, 1)
    healed = fleet.chat(via=1)
    assert healed.ok, str(healed)
    assert healed.route == "relayed"
    assert fleet.wait_owner(0, 0) == owner, "the tunnel was disturbed"


@pytest.mark.cluster(frontends=2, workers=0, peer_links=True)
def test_a_cut_that_no_replica_met_proves_nothing_and_one_that_cannot_be_meant_is_refused(
    fleet: Fleet,
) -> None:
    fleet.cut_peer(0, 1)
    with pytest.raises(ValueError, match=r"cut_peer\(1, 0\): is cut already; try: heal_peer\(1, 0\) first"):
        fleet.cut_peer(1, 0)
    with pytest.raises(FaultNotConfirmed, match="0 dials reset, 0 passed"):
        fleet.heal_peer(1, 0)
    with pytest.raises(ValueError, match=r"heal_peer\(0, 1\): is not cut; try: cut_peer\(0, 1\) first"):
        fleet.heal_peer(0, 1)
    with pytest.raises(ValueError, match="frontend-1 is no peer of itself"):
        fleet.cut_peer(1, 1)
    with pytest.raises(LookupError, match="frontend-2: is not in this cluster"):
        fleet.cut_peer(0, 2)


@pytest.mark.cluster(frontends=2, workers=0)
def test_replicas_without_a_link_between_them_cannot_be_cut(fleet: Fleet) -> None:
    with pytest.raises(ValueError, match=r"there is no link between them; try: cluster\(peer_links=True\)"):
        fleet.cut_peer(0, 1)
