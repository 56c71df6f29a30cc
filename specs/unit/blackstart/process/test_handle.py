"""A handle says the truth about its process and hurts nobody else."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from blackstart.cluster.waiting import eventually
from blackstart.net import lease_ports
from blackstart.process import Exit, Handle, NotDead, ProcessDied, StopEscalated
from blackstart.process import handle as handle_module
from blackstart.process.sockets import is_free
from blackstart.record.identity import read_stat

from .players import SLEEPERS, families, marked, new_mark, sleeping

if TYPE_CHECKING:
    from .conftest import Yard

WITHIN_S = 10.0
SHORT_S = 0.3

HTTP = (sys.executable, "-m", "http.server", "--bind", "127.0.0.1")


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def state(pid: int) -> str:
    stat = read_stat(pid)
    return "gone" if stat is None else stat.state


def test_a_handle_cannot_be_made_by_hand() -> None:
    with pytest.raises(TypeError, match=r"try: Spawner\.spawn"):
        Handle()


@pytest.mark.holds("B-186", "H-10")
def test_a_zombie_is_not_alive_although_signal_zero_reaches_it(yard: Yard) -> None:
    handle = yard.spawn("true")
    eventually(lambda: state(handle.pid), "Z", within=WITHIN_S)
    os.kill(handle.pid, 0)  # control: the usual question is answered as if it ran
    assert handle.alive is False, "a zombie was called alive"
    assert state(handle.pid) == "gone"


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (("true",), Exit(code=0)),
        (("sh", "-c", "exit 3"), Exit(code=3)),
        (("sh", "-c", "kill -TERM $$"), Exit(signal=signal.SIGTERM)),
    ],
    ids=["zero", "three", "signal"],
)
def test_the_exit_status_or_the_signal_is_kept(yard: Yard, argv: tuple[str, ...], expected: Exit) -> None:
    handle = yard.spawn(*argv)
    assert handle.wait(within=WITHIN_S) == expected
    assert handle.exit == expected
    assert yard.events("exit")[0].data["text"] == str(expected)


def test_a_wait_that_is_too_short_says_so_by_none_and_costs_no_longer(yard: Yard) -> None:
    handle = yard.spawn("sleep", new_mark())
    began = time.monotonic()
    assert handle.wait(within=SHORT_S) is None
    assert time.monotonic() - began >= SHORT_S
    assert handle.alive
    assert handle.exit is None


def test_several_threads_wait_for_one_end(yard: Yard) -> None:
    handle = yard.spawn("sleep", new_mark())
    seen: list[Exit | None] = []
    waiters = [threading.Thread(target=lambda: seen.append(handle.wait(within=WITHIN_S))) for _ in range(4)]
    for waiter in waiters:
        waiter.start()
    handle.kill(within=WITHIN_S)
    for waiter in waiters:
        waiter.join()
    assert seen == [Exit(signal=signal.SIGKILL)] * 4
    assert len(yard.events("exit")) == 1


@pytest.mark.holds("H-9", "B-181", "H-2")
@pytest.mark.parametrize("family", ["deaf", "escaping", "wiped"])
def test_a_kill_ends_all_that_came_of_the_process(yard: Yard, family: str) -> None:
    mark = new_mark()
    handle = yard.spawn(*families(mark)[family])
    eventually(lambda: sleeping(mark), SLEEPERS[family], within=WITHIN_S)
    if family == "escaping":  # control: a signal to the group would not reach it any more
        eventually(
            lambda: [os.getsid(pid) == pid for pid in marked(mark) if pid != handle.pid],
            [True],
            within=WITHIN_S,
        )
    death = handle.kill(within=WITHIN_S)
    assert marked(mark) == [], "a child outlived the kill"
    assert death.exit == Exit(signal=signal.SIGKILL)
    assert death.waited_for == "death"


@pytest.mark.holds("B-178", "H-6", "H-41")
def test_after_a_kill_the_same_port_can_be_bound_at_once(yard: Yard) -> None:
    with lease_ports(1, run=yard.run.id, purpose="spec") as lease:
        (port,) = lease.ports
        for incarnation in range(1, 4):
            handle = yard.spawn(*HTTP, str(port), incarnation=incarnation, ports=lease)
            handle.log.wait_for("Serving", within=WITHIN_S)
            with socket.create_connection(("127.0.0.1", port)):  # cut in the middle
                assert not is_free(port)  # control
                death = handle.kill(within=WITHIN_S)
            assert death.ports_free_after_s >= death.dead_after_s


def test_a_kill_waits_until_the_ports_are_free_and_says_what_it_waited_for(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    with lease_ports(1, run=yard.run.id, purpose="spec") as lease, socket.socket() as holder:
        holder.bind(("127.0.0.1", lease.ports[0]))
        holder.listen()
        looks: list[bool] = []

        def lets_go_at_the_third_look(port: int) -> bool:
            if len(looks) == 2:
                holder.close()
            looks.append(is_free(port))
            return looks[-1]

        monkeypatch.setattr(handle_module, "is_free", lets_go_at_the_third_look)
        death = yard.spawn("sleep", new_mark(), ports=lease).kill(within=WITHIN_S)
        assert looks == [False, False, True], "the kill did not wait for the port"
        assert death.waited_for == "ports"


@pytest.mark.holds("B-179", "H-2")
def test_a_kill_is_bounded_and_names_who_holds_the_port(yard: Yard) -> None:
    with lease_ports(1, run=yard.run.id, purpose="spec") as lease, socket.socket() as holder:
        holder.bind(("127.0.0.1", lease.ports[0]))
        holder.listen()
        handle = yard.spawn("sleep", new_mark(), ports=lease)
        with pytest.raises(
            NotDead, match=rf"dead, but port {lease.ports[0]} is not free.*pid {os.getpid()} "
        ):
            handle.kill(within=SHORT_S)
        assert not handle.alive
        assert f"port {lease.ports[0]} is held by pid {os.getpid()}" in handle.crash_report()


@pytest.mark.holds("B-184", "H-3", "B-181")
def test_a_graceful_stop_is_finished_when_it_returns(yard: Yard) -> None:
    handle = yard.spawn("sh", "-c", "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.02; done")
    handle.log.wait_for("up", within=WITHIN_S)
    assert handle.stop(within=WITHIN_S) == Exit(code=0)
    assert handle.log.tail().splitlines()[-1] == "bye"
    assert [event.data["signal"] for event in yard.events("signal")] == ["SIGTERM"]


@pytest.mark.holds("H-3", "H-4")
def test_a_graceful_stop_that_needed_sigkill_is_an_error_and_the_process_is_dead(yard: Yard) -> None:
    mark = new_mark()
    handle = yard.spawn(*families(mark)["deaf"])
    eventually(lambda: sleeping(mark), SLEEPERS["deaf"], within=WITHIN_S)
    escalated = None
    try:
        handle.stop(within=SHORT_S)
    except StopEscalated as wrong:
        escalated = str(wrong)
    assert marked(mark) == []
    assert escalated is not None, "a stop that needed SIGKILL passed as graceful"
    assert "SIGKILL was needed" in escalated


def test_a_stop_may_be_told_to_escalate(yard: Yard) -> None:
    mark = new_mark()
    handle = yard.spawn(*families(mark)["deaf"])
    eventually(lambda: sleeping(mark), SLEEPERS["deaf"], within=WITHIN_S)
    assert handle.stop(within=SHORT_S, escalate=True) == Exit(signal=signal.SIGKILL)
    assert marked(mark) == []


def test_a_stop_that_was_given_no_time_leaves_its_kill_enough(yard: Yard) -> None:
    mark = new_mark()
    handle = yard.spawn(*families(mark)["deaf"])
    eventually(lambda: sleeping(mark), SLEEPERS["deaf"], within=WITHIN_S)
    late = ""
    try:
        handle.stop(within=1e-6, escalate=True)
    except NotDead as wrong:
        late = str(wrong)
    assert not late, f"a kill had only what the stop was given: {late}"
    assert marked(mark) == []


def test_a_stop_that_leaves_a_child_running_is_an_error_too(yard: Yard) -> None:
    mark = new_mark()
    handle = yard.spawn("sh", "-c", f"trap 'exit 0' TERM; setsid sleep {mark} & echo up; wait")
    handle.log.wait_for("up", within=WITHIN_S)
    eventually(lambda: sleeping(mark), 1, within=WITHIN_S)
    with pytest.raises(StopEscalated, match="ended with exit status 0 and left pid"):
        handle.stop(within=SHORT_S)
    assert marked(mark) == []


@pytest.mark.holds("B-179")
def test_stopping_or_killing_what_has_ended_gives_its_end(yard: Yard) -> None:
    handle = yard.spawn("sh", "-c", "exit 3")
    assert handle.wait(within=WITHIN_S) == Exit(code=3)
    assert handle.stop(within=WITHIN_S) == Exit(code=3)
    assert handle.kill(within=WITHIN_S).exit == Exit(code=3)


def test_a_kill_after_a_crash_ends_what_the_crash_left(yard: Yard) -> None:
    mark = new_mark()
    handle = yard.spawn("sh", "-c", f"setsid sleep {mark} & exit 3")
    assert handle.wait(within=WITHIN_S) == Exit(code=3)
    eventually(lambda: sleeping(mark), 1, within=WITHIN_S)
    handle.kill(within=WITHIN_S)
    assert marked(mark) == []


@pytest.mark.holds("H-5")
def test_pause_and_resume_reach_what_left_the_group_and_are_confirmed(yard: Yard) -> None:
    mark = new_mark()
    handle = yard.spawn(*families(mark)["escaping"])
    eventually(lambda: sleeping(mark), SLEEPERS["escaping"], within=WITHIN_S)
    assert [pid for pid in marked(mark) if state(pid) == "T"] == []  # control
    handle.pause()
    assert {state(pid) for pid in marked(mark)} == {"T"}, "what left the group was not paused"
    assert handle.alive
    handle.resume()
    assert [pid for pid in marked(mark) if state(pid) == "T"] == []


def test_a_stop_of_a_paused_process_is_heard(yard: Yard) -> None:
    handle = yard.spawn("sleep", new_mark())
    handle.pause()
    assert handle.stop(within=WITHIN_S) == Exit(signal=signal.SIGTERM)


def test_pausing_resuming_or_signalling_what_has_ended_says_how_it_ended(yard: Yard) -> None:
    handle = yard.spawn("sh", "-c", "echo last words; exit 3")
    handle.wait(within=WITHIN_S)
    for act in (handle.pause, handle.resume, lambda: handle.signal(signal.SIGUSR1)):
        with pytest.raises(ProcessDied, match=r"(?s)exit status 3.*last words"):
            act()


@pytest.mark.holds("H-12")
def test_a_crash_report_has_all_a_person_needs_and_no_secret(yard: Yard) -> None:
    handle = yard.spawn("sh", "-c", "echo password=hunter2; echo broken >&2; exit 3", "--token=hunter2")
    handle.wait(within=WITHIN_S)
    report = handle.crash_report()
    assert "node.1: ended with exit status 3" in report
    assert "signals none sent by us" in report
    assert "| broken" in report
    assert str(handle.log.path) in report
    assert "hunter2" not in report
    assert handle.describe_death() == report


def test_our_own_kill_is_told_apart_from_anybody_elses(yard: Yard) -> None:
    ours, theirs = yard.spawn("sleep", new_mark()), yard.spawn("sleep", new_mark(), node="other")
    ours.kill(within=WITHIN_S)
    os.kill(theirs.pid, signal.SIGKILL)
    theirs.wait(within=WITHIN_S)
    assert "signals SIGKILL sent by us" in ours.crash_report()
    assert "signals none sent by us" in theirs.crash_report()


def test_a_handle_keeps_no_descriptor_once_its_process_is_reaped(yard: Yard) -> None:
    before = descriptors()
    handles = [yard.spawn("true", node=f"n{number}") for number in range(8)]
    assert descriptors() == before + len(handles)  # control
    assert [handle.wait(within=WITHIN_S) for handle in handles] == [Exit(code=0)] * 8
    assert descriptors() == before


def test_its_repr_says_what_a_failing_assertion_needs(yard: Yard) -> None:
    handle = yard.spawn("sh", "-c", "exit 3")
    assert repr(handle).startswith(f"<Handle node.1 pid={handle.pid} ")
    handle.wait(within=WITHIN_S)
    assert "exit status 3" in repr(handle)
