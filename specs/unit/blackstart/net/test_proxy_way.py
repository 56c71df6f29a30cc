"""A slow link: what is asserted of time is never early; how exact it is stands in the specs of `core.line`."""

from __future__ import annotations

import asyncio
import hashlib
import socket
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, cast

import pytest
from specs.unit.blackstart.net.test_proxy_link import dialled, echo, link

from blackstart.cluster.waiting import eventually
from blackstart.core.line import Line
from blackstart.core.shape import CLEAR, Shape
from blackstart.net.proxy_control import ControlError
from blackstart.net.proxy_link import Link
from blackstart.net.proxy_pipe import Side

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from specs.unit.blackstart.net.conftest import Rig

    from blackstart.net.proxy_way import Way

__all__ = ["echo", "link"]

WITHIN_S = 20.0
DELAY_S = 0.15
LONGEST_S = 60.0  # nobody waits that long
ONE_READ = 256 * 1024


@contextmanager
def serving(talk: Callable[[socket.socket], None]) -> Iterator[int]:
    """A server that has one talk with one client."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(WITHIN_S)

        def accept() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.settimeout(WITHIN_S)
                talk(connection)

        thread = threading.Thread(target=accept)
        thread.start()
        yield listener.getsockname()[1]
        thread.join(WITHIN_S)


def round_trip_s(connection: socket.socket) -> float:
    begun = time.monotonic()
    connection.sendall(b"x")
    assert connection.recv(1) == b"x"
    return time.monotonic() - begun


def said(connection: socket.socket, data: bytes) -> None:
    connection.sendall(data)
    connection.shutdown(socket.SHUT_WR)


def received(connection: socket.socket) -> bytes:
    data = bytearray()
    while chunk := connection.recv(65536):
        data += chunk
    return bytes(data)


def test_a_round_trip_takes_both_delays_on_live_and_new_connections_until_they_are_taken_back(
    link: Link,
) -> None:
    with dialled(link) as live:
        eventually(lambda: round_trip_s(live) < DELAY_S, True, within=WITHIN_S)  # the control
        link.slow(up=Shape(delay_s=DELAY_S), down=Shape(delay_s=DELAY_S / 2))
        with dialled(link) as new:
            for connection in (live, new):
                assert round_trip_s(connection) >= 1.5 * DELAY_S, "a byte came early"
        link.slow(down=CLEAR)
        assert round_trip_s(live) >= DELAY_S, "the direction that was not named lost its delay"
        link.slow(up=CLEAR)
        eventually(lambda: round_trip_s(live) < DELAY_S, True, within=WITHIN_S)


def test_a_rate_is_kept_and_every_byte_comes_in_order(link: Link) -> None:
    sent = hashlib.shake_128(b"slow").digest(300_000)
    rate = 400_000

    def transfer() -> float:
        with dialled(link) as connection:
            begun = time.monotonic()
            sending = threading.Thread(target=said, args=(connection, sent))
            sending.start()
            assert received(connection) == sent
            sending.join()
            return time.monotonic() - begun

    wanted_s = len(sent) / rate
    eventually(lambda: transfer() < wanted_s, True, within=WITHIN_S)  # the control
    link.slow(up=Shape(bytes_per_s=rate))
    assert transfer() >= wanted_s, "faster than the rate"
    link.slow(up=CLEAR, down=Shape(bytes_per_s=rate))
    assert transfer() >= wanted_s, "faster than the rate on the way back"


def test_connections_share_the_rate(link: Link) -> None:
    rate, each = 400_000, 60_000
    link.slow(up=Shape(bytes_per_s=rate))
    with dialled(link) as one, dialled(link) as two:
        begun = time.monotonic()
        for connection in (one, two):
            connection.sendall(bytes(each))
        for connection in (one, two):
            left = each
            while left:
                left -= len(connection.recv(left))
        assert time.monotonic() - begun >= 2 * each / rate, "each had the whole rate"


def test_what_is_under_way_for_a_minute_comes_at_once_when_the_link_is_made_clear(link: Link) -> None:
    with dialled(link) as live:
        link.slow(up=Shape(delay_s=LONGEST_S, bytes_per_s=100))
        begun = time.monotonic()
        live.sendall(b"late")
        live.shutdown(socket.SHUT_WR)
        eventually(lambda: link.status().up.held, 5, within=WITHIN_S)  # four bytes and the end
        link.slow(up=CLEAR)
        eventually(lambda: link.status().up.held, 0, within=WITHIN_S / 2)
        assert received(live) == b"late"
        assert time.monotonic() - begun < LONGEST_S
        eventually(lambda: (link.status().up.held, link.status().live), (0, 0), within=WITHIN_S)


def test_an_end_of_file_is_as_slow_as_bytes_and_the_other_direction_goes_on(rig: Rig) -> None:
    ended_at: list[float] = []

    def talk(connection: socket.socket) -> None:
        assert received(connection) == b"question"
        ended_at.append(time.monotonic())
        connection.sendall(b"answer")

    with serving(talk) as port, Link(rig.spawner, rig.run, target_port=port) as slow:
        with dialled(slow) as connection:
            connection.sendall(b"question")
            eventually(lambda: slow.status().up.passed, len(b"question"), within=WITHIN_S)
            slow.slow(up=Shape(delay_s=DELAY_S), down=Shape(delay_s=DELAY_S))
            begun = time.monotonic()
            connection.shutdown(socket.SHUT_WR)
            assert received(connection) == b"answer", "the end overtook what came before it"
            over = time.monotonic()
        assert ended_at[0] - begun >= DELAY_S, "the end of file was early"
        assert over - ended_at[0] >= DELAY_S


def test_a_connection_that_is_over_at_one_end_is_over_at_the_other_a_delay_later(rig: Rig) -> None:
    left_at: list[float] = []

    def talk(connection: socket.socket) -> None:
        connection.recv(1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        left_at.append(time.monotonic())

    with serving(talk) as port, Link(rig.spawner, rig.run, target_port=port) as slow:
        with dialled(slow) as connection:
            slow.slow(down=Shape(delay_s=DELAY_S))
            connection.sendall(b"x")
            with pytest.raises(ConnectionResetError):
                connection.recv(1)
            assert time.monotonic() - left_at[0] >= DELAY_S, "the reset was early"
        eventually(lambda: slow.status().live, 0, within=WITHIN_S)


def test_no_more_is_under_way_than_the_link_holds_and_its_sender_is_made_to_wait(rig: Rig) -> None:
    shape = Shape(delay_s=0.05, bytes_per_s=1_000_000)
    done = threading.Event()

    def talk(_: socket.socket) -> None:
        done.wait(WITHIN_S)  # and reads nothing

    with serving(talk) as port:
        with Link(rig.spawner, rig.run, target_port=port) as slow, dialled(slow) as connection:
            slow.slow(up=shape)
            connection.setblocking(False)
            sent = 0

            def stuck() -> bool:
                nonlocal sent
                before = sent
                try:
                    while True:
                        sent += connection.send(bytes(65536))
                except BlockingIOError:
                    status = slow.status().up
                    assert status.held <= shape.in_flight_bytes + ONE_READ
                    return sent == before and status.held > 0 and status.passed > 0

            eventually(stuck, True, within=WITHIN_S)
            before = slow.status().up
            assert before.held > 0, "control: something is under way that could grow"
        done.set()


def test_a_restarted_link_is_as_slow_as_it_was_told_and_a_healed_one_too(link: Link) -> None:
    link.slow(up=Shape(delay_s=DELAY_S), down=Shape(bytes_per_s=1000))
    link.restart()
    assert link.status().up.shape == Shape(delay_s=DELAY_S)
    assert link.status().down.shape == Shape(bytes_per_s=1000)
    link.heal()
    with dialled(link) as connection:
        assert round_trip_s(connection) >= DELAY_S


def test_a_blackhole_keeps_what_is_under_way_and_a_cut_drops_it(link: Link) -> None:
    with dialled(link) as live:
        assert round_trip_s(live)
        link.slow(down=Shape(delay_s=LONGEST_S))
        live.sendall(b"late")
        eventually(lambda: link.status().down.held, 4, within=WITHIN_S)
        link.blackhole()
        link.slow(down=CLEAR)  # due by now, but for the hole
        live.settimeout(DELAY_S)
        with pytest.raises(TimeoutError):
            live.recv(1)
        link.heal()
        live.settimeout(WITHIN_S)
        assert live.recv(4) == b"late"
        link.slow(up=Shape(delay_s=LONGEST_S))
        live.sendall(b"never")
        eventually(lambda: link.status().up.held, 5, within=WITHIN_S)
        link.cut()
        with pytest.raises(ConnectionResetError):
            live.recv(1)
    eventually(lambda: (link.status().up.held, link.status().live), (0, 0), within=WITHIN_S)


@pytest.mark.parametrize(
    ("shapes", "wrong"),
    [
        ({"up": {"delay_s": -1}}, "delay_s=-1: a delay is 0 to 60 seconds"),
        ({"up": {"bytes_per_s": 0}}, "bytes_per_s=0: a rate is 1 to"),
        ({"up": {"bytes_per_s": "fast"}}, "bytes_per_s='fast': is no finite number"),
        ({"up": {"loss": 1}}, "loss: is no field of a shape"),
        ({"sideways": {"delay_s": 1}}, "sideways: is no direction of a link"),
    ],
)
def test_a_bad_shape_is_a_named_error_of_the_child_and_changes_nothing(
    link: Link, shapes: dict[str, dict[str, object]], wrong: str
) -> None:
    with pytest.raises(ControlError, match=f"link: shape: {wrong}"):
        link.control.command("shape", shapes={"down": {"delay_s": 1.0}, **shapes})
    assert (link.status().up.shape, link.status().down.shape) == (CLEAR, CLEAR)


def test_the_link_measures_what_it_does_each_direction_alone(link: Link) -> None:
    rate = 1_000_000
    link.slow(up=Shape(delay_s=DELAY_S, bytes_per_s=rate))
    probe = link.probe(within_s=WITHIN_S)
    assert probe.up.byte_s >= DELAY_S
    assert probe.up.train_bytes == rate // 10
    assert probe.up.train_s >= DELAY_S + 0.1
    eventually(lambda: link.probe(within_s=WITHIN_S).down.byte_s < DELAY_S, True, within=WITHIN_S)
    eventually(lambda: link.status().up.held, 0, within=WITHIN_S)


def test_a_probe_that_takes_too_long_says_so(link: Link) -> None:
    link.slow(up=Shape(delay_s=LONGEST_S))
    with pytest.raises(
        ControlError, match=r"its probe failed: not over within 0\.2 s; try: a longer within_s"
    ):
        link.probe(within_s=0.2)
    with pytest.raises(ControlError, match="no such probe"):
        link.control.command("probed", number=99)


class _Transport:
    """Takes everything and remembers it."""

    def __init__(self) -> None:
        self.written = bytearray()

    def write(self, data: bytes) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return False

    def get_extra_info(self, _name: str) -> socket.socket:
        return self.sock

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    sock: socket.socket


@contextmanager
def a_way(line: Line) -> Iterator[tuple[Side, Side, Way]]:
    """A source, a target and the way between them, without a connection."""
    with socket.socket() as sock:
        sides = []
        for _ in range(2):
            transport = _Transport()
            transport.sock = sock
            side = Side()
            side.transport = cast("asyncio.Transport", transport)
            sides.append(side)
        source, target = sides
        way = source.travel(target, line)
        source.join(target)
        yield source, target, way
        way.drop()


def test_a_way_waits_on_one_timer_however_often_bytes_come() -> None:
    async def story() -> None:
        loop = asyncio.get_running_loop()
        line = Line(Shape(delay_s=LONGEST_S, bytes_per_s=1_000_000))
        with a_way(line) as (source, target, way):
            for _ in range(100):
                source.data_received(b"x")
            waiting = [
                handle
                for handle in loop._scheduled  # type: ignore[attr-defined]  # asyncio tells it in no other way
                if not handle.cancelled()
            ]
            assert len(waiting) == 1, "timers pile up"
            line.reshape(CLEAR, time.monotonic_ns())
            way.look()
            assert bytes(cast("_Transport", target.transport).written) == b"x" * 100

    asyncio.run(story())


def test_the_kernel_holds_little_of_what_waits_for_a_rate_and_as_much_as_it_likes_without() -> None:
    async def story() -> None:
        line = Line(Shape(bytes_per_s=1_000_000))
        with a_way(line) as (source, _, way):
            sock = cast("_Transport", source.transport).sock
            paced = sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
            assert paced <= 2 * 64 * 1024, "seconds of a slow link may hide in the kernel"
            line.reshape(CLEAR, time.monotonic_ns())
            way.fit()
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) > paced

    asyncio.run(story())
