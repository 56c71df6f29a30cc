"""A node keeps its ports, loses its data only when told to, and never has two things done to it at once."""

from __future__ import annotations

import os
import signal
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from blackstart.cluster.lifecycle import ALLOWED, NodeBusy, Operation, State, check
from blackstart.cluster.node import UnexpectedExit, WipeRefused, refuse_outside, wipe
from blackstart.cluster.readiness import NodeNotReady
from blackstart.cluster.waiting import Waiter, installed
from blackstart.core.topology import ArgvService, Group, HttpReady, LogReady
from blackstart.net import StrangerListens
from blackstart.process import StopEscalated
from blackstart.process.strays import Sought, find
from blackstart.record import read_journal

from .conftest import SOON, die, get

if TYPE_CHECKING:
    from collections.abc import Callable

    from blackstart.cluster.cluster import Cluster
    from blackstart.cluster.node import Node

    from .conftest import World


def _pid(node: Node) -> int:
    return int(get(node))


def _starts(node: Node) -> int:
    return len((node.place.data_dir / "starts").read_text().splitlines())


def test_a_started_node_is_ready_and_answers_as_the_process_it_names(one: Callable[..., Cluster]) -> None:
    node = one().node("web-0")
    node.start()
    assert _pid(node) == node.pid
    assert (node.state, node.incarnation, node.alive) == (State.READY, 1, True)


@pytest.mark.holds("B-178", "B-182")
def test_a_restart_keeps_the_port_and_a_warm_one_the_data(one: Callable[..., Cluster]) -> None:
    node = one().node("web-0")
    node.start()
    port, first = node.port, node.pid
    node.restart()
    assert node.port == port
    assert _pid(node) == node.pid != first
    assert node.incarnation == 2
    assert _starts(node) == 2


@pytest.mark.holds("B-182")
def test_a_cold_restart_wipes_the_data_folder_and_keeps_the_port(one: Callable[..., Cluster]) -> None:
    node = one().node("web-0")
    node.start()
    port = node.port
    (node.place.data_dir / "deep").mkdir()
    (node.place.data_dir / "deep" / "file").write_text("x")
    node.restart(cold=True)
    assert (node.port, _starts(node)) == (port, 1)
    assert not (node.place.data_dir / "deep").exists()


@pytest.mark.holds("B-185")
@pytest.mark.parametrize(
    "folder", ["{outside}", "relative/data", "{run}", "{run}/..", "{run}/../outside", "{link}"]
)
def test_a_folder_outside_the_run_is_refused(folder: str, tmp_path: Path) -> None:
    # only asked, never wiped: a guard that is broken must not cost a folder
    run, outside = tmp_path / "run", tmp_path / "outside"
    run.mkdir()
    outside.mkdir()
    (run / "link").symlink_to(outside)
    path = Path(folder.format(run=run, outside=outside, link=run / "link"))
    with pytest.raises(WipeRefused):
        refuse_outside(path, run)
    refuse_outside(run / "spec" / "web-0.data", run)


@pytest.mark.holds("B-185")
def test_wiping_asks_first(tmp_path: Path) -> None:
    run, outside = tmp_path / "run", tmp_path / "outside"
    run.mkdir()
    (outside / "deep").mkdir(parents=True)
    with pytest.raises(WipeRefused):
        wipe(outside, run)
    assert (outside / "deep").exists()


@pytest.mark.holds("B-185")
@pytest.mark.parametrize("run", [Path("run"), Path("/nowhere/at/all")])
def test_without_a_run_folder_nothing_is_wiped(run: Path) -> None:
    with pytest.raises(WipeRefused, match="is not an absolute path of a folder that exists"):
        refuse_outside(Path("/nowhere/at/all/data"), run)


@pytest.mark.holds("B-185")
def test_a_cold_restart_that_may_not_wipe_is_refused_before_anything_is_ended(
    one: Callable[..., Cluster], tmp_path: Path
) -> None:
    node = one().node("web-0")
    node.start()
    pid = node.pid
    inside = node.place
    (tmp_path / "precious").write_text("x")
    node.place = replace(node.place, data_dir=tmp_path)
    with pytest.raises(WipeRefused, match="lies outside the run folder"):
        node.restart(cold=True)
    assert (tmp_path / "precious").exists()
    assert node.alive, "the process was ended although nothing may be wiped"
    assert (_pid(node), node.state) == (pid, State.READY)
    node.place = inside


def test_a_crash_before_ready_is_told_at_once_with_status_and_log(one: Callable[..., Cluster]) -> None:
    node = one("crash=3", ready=600.0).node("web-0")
    with pytest.raises(
        NodeNotReady, match=r"ended before it was ready(.|\n)*exit status 3(.|\n)*cannot find its feet"
    ):
        node.start()
    assert (node.state, node.alive) == (State.FAILED, False)


@pytest.mark.parametrize(("factor", "budget"), [(1.0, "1.2 s"), (2.0, "2.4 s")])
def test_a_node_that_is_never_ready_says_what_it_answered_and_is_not_left_running(
    one: Callable[..., Cluster], factor: float, budget: str
) -> None:
    node = one("never=1", ready=1.2).node("web-0")
    with (
        installed(Waiter(factor=factor)),
        pytest.raises(
            NodeNotReady, match=rf"not ready within {budget} \(GET / answering 200; \d+ looks; last: 503"
        ),
    ):
        node.start()
    assert not node.alive


def test_a_stranger_that_answers_on_the_nodes_port_is_not_taken_for_the_node(world: World) -> None:
    sleeper = ArgvService(name="sleeper", argv=("sleep", "600"), ready=HttpReady(path="/"))
    cluster = world.cluster(Group(service=sleeper), death=0.3)
    node = cluster.node("sleeper-0")
    answers = type("Page", (BaseHTTPRequestHandler,), {"do_GET": _says_200, "log_message": lambda *_: None})
    with ThreadingHTTPServer((node.place.host, node.port), answers) as stranger:
        thread = threading.Thread(target=stranger.serve_forever)
        thread.start()
        try:
            with pytest.raises(StrangerListens, match=str(os.getpid())) as seen:
                node.start()
            assert "could not be ended" in seen.value.__notes__[0], "the stranger keeps the port"
        finally:
            stranger.shutdown()
            thread.join()
    assert (node.state, node.alive) == (State.FAILED, False)
    cluster.end()


def _says_200(page: BaseHTTPRequestHandler) -> None:
    page.send_response(200)
    page.end_headers()


def test_a_graceful_stop_with_an_undeclared_exit_status_is_an_error(one: Callable[..., Cluster]) -> None:
    node = one("code=4").node("web-0")
    node.start()
    with pytest.raises(
        UnexpectedExit, match=r"a graceful stop ended with exit status 4, expected exit status 0"
    ):
        node.stop()
    assert node.state is State.IDLE


def test_an_end_by_the_stop_signal_itself_must_be_declared_too(world: World) -> None:
    unhandled = ArgvService(
        name="plain",
        argv=("sh", "-c", "echo up; exec sleep 1000"),
        ports=0,
        listens=0,
        ready=LogReady(pattern="up"),
    )
    node = world.cluster(Group(service=unhandled)).node("plain-0")
    node.start()
    with pytest.raises(
        UnexpectedExit, match=r"killed by SIGTERM, expected exit status 0; try: exit_codes = \{-15\}"
    ):
        node.stop()
    declared = replace(unhandled, name="declared", exit_codes=frozenset({-signal.SIGTERM}))
    node = world.cluster(Group(service=declared)).node("declared-0")
    node.start()
    assert node.stop().signal == signal.SIGTERM


def test_a_stop_that_needed_a_kill_is_an_error_unless_asked_for(one: Callable[..., Cluster]) -> None:
    node = one("deaf=1", stop=0.3).node("web-0")
    node.start()
    with pytest.raises(StopEscalated):
        node.stop()
    assert not node.alive
    node.start()
    assert node.stop(escalate=True).signal == signal.SIGKILL


def test_a_clean_stop_gives_the_exit_and_is_no_death(one: Callable[..., Cluster]) -> None:
    cluster = one()
    node = cluster.node("web-0")
    node.start()
    assert node.stop().code == 0
    assert not node.died
    assert cluster.dead == ()


def test_a_process_that_ended_unasked_reads_died_and_can_be_started_again(
    one: Callable[..., Cluster],
) -> None:
    node = one().node("web-0")
    node.start()
    die(node)
    assert node.died
    assert "exit status 7" in node.describe_death()
    node.start()
    assert (node.state, node.incarnation) == (State.READY, 2)


@pytest.mark.parametrize("end", ["start", "restart", "cold restart", "end"])
def test_what_a_process_that_ended_by_itself_left_running_is_ended_before_anything_else(
    one: Callable[..., Cluster], end: str
) -> None:
    cluster = one("child=1")
    node = cluster.node("web-0")
    node.start()
    die(node)
    left = node.handle.members()
    assert len(left) == 1, "the control: its child outlived it"
    if end == "end":
        cluster.end()
    elif end == "start":
        node.start()
    else:
        node.restart(cold=end.startswith("cold"))
    assert find(Sought(run=cluster.run.id), left) == [], "the child of the dead one is still there"


def test_a_paused_node_is_alive_and_answers_nobody_until_resumed(one: Callable[..., Cluster]) -> None:
    node = one().node("web-0")
    node.start()
    node.pause()
    assert (node.alive, node.state) == (True, State.PAUSED)
    with pytest.raises(NodeBusy, match="cannot stop while paused; try: resume it first"):
        node.stop()
    with pytest.raises(OSError, match="timed out"):
        get(node, within=0.2)
    node.resume()
    assert _pid(node) == node.pid


@pytest.mark.holds("B-184")
def test_a_restart_is_refused_while_a_graceful_stop_is_under_way(one: Callable[..., Cluster]) -> None:
    node = one("slow=0.6").node("web-0")
    node.start()
    mark = node.log.mark()
    stopping = threading.Thread(target=node.stop)
    stopping.start()
    node.log.wait_for("asked to end", after=mark, within=SOON)
    with pytest.raises(NodeBusy, match="cannot restart during a stop; try: wait until it has ended"):
        node.restart()
    stopping.join(SOON)
    assert node.handle.exit is not None
    assert node.handle.exit.code == 0, "the stop became a crash"
    node.restart()
    assert node.incarnation == 2


@pytest.mark.holds("B-184")
def test_no_state_but_its_end_lets_a_stopping_node_be_restarted() -> None:
    assert State.STOPPING not in ALLOWED[Operation.RESTART]
    with pytest.raises(
        NodeBusy, match="web-0: cannot restart while stopping; try: wait until its graceful stop ends"
    ):
        check("web-0", Operation.RESTART, State.STOPPING)


def test_every_operation_names_the_states_it_means_something_in() -> None:
    assert set(ALLOWED) == set(Operation)
    assert all(states and states < set(State) for states in ALLOWED.values())


def test_a_start_of_a_running_node_is_refused(one: Callable[..., Cluster]) -> None:
    node = one().node("web-0")
    node.start()
    with pytest.raises(NodeBusy, match="cannot start while ready; try: it is running already"):
        node.start()


def test_ready_is_journaled_with_pid_and_incarnation(one: Callable[..., Cluster]) -> None:
    cluster = one()
    node = cluster.node("web-0")
    node.start()
    event = [event for event in read_journal(cluster.run.dir) if event.kind == "ready"][-1]
    assert (event.node, event.incarnation, event.data["pid"]) == ("web-0", 1, node.pid)


def test_variables_set_on_a_node_reach_its_next_start(one: Callable[..., Cluster]) -> None:
    node = one().node("web-0")
    node.set_env(FLAVOUR="salt")
    node.start()
    assert node.handle.environ["FLAVOUR"] == "salt"
