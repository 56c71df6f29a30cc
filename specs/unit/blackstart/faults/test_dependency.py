"""A Postgres of one's own, taken away in each way, with clients on both sides of its link."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from blackstart.core.fault import Finding
from blackstart.faults import standing
from blackstart.faults.dependency import PostgresDown, PostgresPaused, PostgresRefused, answer_of
from blackstart.infra import Harm, Infra, OwnServer
from blackstart.record import Journal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from specs.unit.blackstart.faults.conftest import Rig

    from blackstart.faults import Fault, Standing

WITHIN_S = 20.0


@pytest.fixture
def server(rig: Rig) -> Iterator[OwnServer]:
    with Infra(rig.run, rig.spawner) as infra:
        yield infra.own_server()


@pytest.fixture
def journal(rig: Rig) -> Iterator[Journal]:
    with Journal(rig.run, writer="dependency") as own:
        yield own


def put_in(rig: Rig, journal: Journal, fault: Fault) -> AbstractContextManager[Standing]:
    return standing(fault, journal=journal, ledger=rig.spawner.ledger, user=None, within_s=WITHIN_S)


def test_a_paused_postgres_is_silent_and_answers_again(rig: Rig, journal: Journal, server: OwnServer) -> None:
    assert answer_of(server.url(), within_s=WITHIN_S) == "answers", "control: it answers before"
    with put_in(rig, journal, PostgresPaused(server)) as stands:
        assert "silent" in str(stands.evidence)
        assert server.alive
    assert answer_of(server.url(), within_s=WITHIN_S) == "answers"


def test_a_refused_postgres_is_refused_on_its_link_alone(
    rig: Rig, journal: Journal, server: OwnServer
) -> None:
    with put_in(rig, journal, PostgresRefused(server)):
        assert answer_of(server.url()) == "refused"
        assert answer_of(server.direct_url(), within_s=WITHIN_S) == "answers"
    assert answer_of(server.url(), within_s=WITHIN_S) == "answers"


@pytest.mark.parametrize("harm", [Harm.KILL, Harm.QUIT])
def test_an_ended_postgres_is_down_until_lifted_and_then_another_process_on_its_port(
    rig: Rig, journal: Journal, server: OwnServer, harm: Harm
) -> None:
    pid = server.server.pid
    with put_in(rig, journal, PostgresDown(server, harm=harm)):
        assert not server.alive
    assert server.server.pid != pid
    assert answer_of(server.url(), within_s=WITHIN_S) == "answers"


def test_a_refusal_that_is_really_a_dead_server_is_a_mismatch(server: OwnServer) -> None:
    refused = PostgresRefused(server)
    refused.inject()
    assert refused.confirm().finding is Finding.CONFIRMED, "control"
    server.kill()
    assert refused.confirm().finding is Finding.MISMATCH
