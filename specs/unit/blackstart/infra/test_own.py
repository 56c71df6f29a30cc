"""A server of one's own, to be hurt."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

from blackstart.infra import Harm, Infra, InfraError, OwnServer
from blackstart.infra.server import processes_of
from blackstart.net.proxy import Mode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from specs.unit.blackstart.infra.conftest import Rig


@pytest.fixture
def server(rig: Rig) -> Iterator[OwnServer]:
    with Infra(rig.run, rig.spawner) as infra:
        yield infra.own_server()


def write(url: str, value: int) -> None:
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS kept (x int)")
        connection.execute("INSERT INTO kept VALUES (%s)", (value,))


def kept(url: str) -> list[int]:
    with contextlib.closing(psycopg.connect(url)) as connection:
        return [row[0] for row in connection.execute("SELECT x FROM kept ORDER BY x").fetchall()]


def answers(url: str, *, within_s: int = 20) -> bool:
    try:
        with contextlib.closing(psycopg.connect(url, connect_timeout=within_s)):
            return True
    except psycopg.OperationalError:
        return False


@pytest.mark.parametrize("harm", list(Harm))
def test_committed_rows_survive_every_harm_and_the_server_comes_back_where_it_was(
    server: OwnServer, harm: Harm
) -> None:
    url, pid = server.url(), server.server.pid
    write(url, 1)
    server.kill(harm)
    assert not server.alive
    assert not answers(url)
    assert "postgres-own" in server.describe_death()
    server.restart()
    assert server.server.pid != pid
    assert (server.url(), kept(url)) == (url, [1])


def test_a_running_server_is_restarted_gently_or_as_told(server: OwnServer) -> None:
    write(server.url(), 1)
    server.restart()
    write(server.url(), 2)
    server.restart(Harm.KILL)
    assert kept(server.url()) == [1, 2]
    assert server.incarnation == 3


def test_a_paused_server_gives_no_answer_and_no_end_and_goes_on_when_resumed(server: OwnServer) -> None:
    write(server.url(), 1)
    with contextlib.closing(psycopg.connect(server.url())) as live:
        assert answers(server.url())
        server.pause()
        assert not answers(server.url(), within_s=2), "a paused server answered"
        assert server.alive
        server.resume()
        assert live.execute("SELECT 1").fetchone() == (1,), "the connection did not outlive the pause"
    assert kept(server.url()) == [1]


def test_clients_behind_a_refusing_link_are_cut_off_while_the_server_answers_elsewhere(
    server: OwnServer,
) -> None:
    server.link.refuse()
    assert server.link.status().mode is Mode.REFUSE
    assert not answers(server.url())
    assert answers(server.direct_url()), "control: the server itself is well"
    server.link.heal()
    assert answers(server.url())


def test_a_closed_server_leaves_no_process_no_folder_and_no_port(server: OwnServer) -> None:
    folder = server.server.data_dir
    name = server.database(prepare=lambda url: write(url, 7))
    assert kept(server.url(name)) == [7]
    assert server.server.pids
    assert server.version >= 180000
    assert server.close() == ()
    assert server.close() == (), "a second time is fine"
    assert (Path(folder).exists(), processes_of(Path(folder))) == (False, ())
    with pytest.raises(InfraError, match="is closed"):
        server.url()
