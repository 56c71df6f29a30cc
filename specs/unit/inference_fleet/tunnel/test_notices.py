"""What is told of stalls and resets, by which end, over whole sessions."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from inference_fleet.telemetry.metrics import Metrics
from inference_fleet.tunnel import Notices, ResetCause, StallSide, counted
from inference_fleet.tunnel.notices import MEANINGS, Reporter
from inference_fleet.tunnel.yamux.windows import LOCAL_WINDOW
from inference_fleet.tunnel.yamux.wire import INITIAL_WINDOW

from .linked import Collector, soon, until
from .piped import TIMINGS, piped

if TYPE_CHECKING:
    from inference_fleet.tunnel import Stream


@dataclass
class Told:
    """What one end was told."""

    resets: list[ResetCause] = field(default_factory=list)
    stalls: list[StallSide] = field(default_factory=list)

    @property
    def notices(self) -> Notices:
        return Notices(reset=self.resets.append, stalled=self.stalls.append)


async def _echo_all_but_the_first(stream: Stream) -> None:
    """The first stream is never read."""
    if stream.id > 1:
        seen = Collector()
        stream.set_protocol(seen)
        await seen.eof
        stream.write(bytes(seen.data))
        stream.write_eof()
    await asyncio.Event().wait()


@pytest.mark.holds("T-76", "T-14")
def test_a_stream_its_peer_does_not_read_is_told_by_the_end_that_waits_and_keeps_nobody_waiting() -> None:
    async def story() -> None:
        client, server = Told(), Told()
        async with piped(
            on_server_stream=_echo_all_but_the_first,
            client_notices=client.notices,
            server_notices=server.notices,
        ) as both:
            stuck = both.client.open_stream()
            stuck.write(bytes(INITIAL_WINDOW + 1))
            await until(lambda: client.stalls == [StallSide.WINDOW])
            seen, other = Collector(), both.client.open_stream()
            other.set_protocol(seen)
            other.write(b"meanwhile")
            other.write_eof()
            await until(lambda: bytes(seen.data) == b"meanwhile")
            far = both.server._streams[stuck.id]
            far.set_protocol(Collector())
            await until(lambda: stuck.get_write_buffer_size() == 0)
            assert not both.client._mux.stalls
            far.pause_reading()
            stuck.write(bytes(2 * LOCAL_WINDOW))
            await until(lambda: client.stalls == [StallSide.WINDOW] * 2)
            assert server.stalls == [], "it waits for nobody"

    asyncio.run(story())


@pytest.mark.holds("T-76")
def test_a_connection_that_takes_nothing_is_told_once() -> None:
    async def story() -> None:
        client = Told()
        async with piped(on_server_stream=_echo_all_but_the_first, client_notices=client.notices) as both:
            stream = both.client.open_stream()
            both.client_carrier.stuck = True
            stream.write(b"data")
            await until(lambda: client.stalls == [StallSide.CARRIER])

    asyncio.run(story())


@pytest.mark.holds("T-76")
@pytest.mark.parametrize("side", StallSide)
def test_a_stall_is_counted_by_what_was_waited_for_and_said(
    side: StallSide, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    metrics = Metrics()

    def served() -> list[str]:
        return [line for line in metrics.render().decode().splitlines() if "stream_stalls_total{" in line]

    async def story() -> None:
        async with piped(on_server_stream=_echo_all_but_the_first, client_notices=counted(metrics)) as both:
            stream = both.client.open_stream()
            both.client_carrier.stuck = side is StallSide.CARRIER
            stream.write(bytes(1 if side is StallSide.CARRIER else INITIAL_WINDOW + 1))
            await until(lambda: "stalled" in caplog.text)
            due = [
                f'blackstart_stream_stalls_total{{side="{one}"}} {float(one is side)}' for one in StallSide
            ]
            assert served() == due, "the count of stalls is another"

    asyncio.run(story())
    assert f"stalled ({side})" in caplog.text


async def _fail(stream: Stream) -> None:
    stream.accept()
    await stream.read_exactly(1, deadline=soon())
    raise RuntimeError(f"stream {stream.id} met a bug")


async def _wait(stream: Stream) -> None:
    seen = Collector()
    stream.set_protocol(seen)
    await seen.lost


@pytest.mark.holds("T-17")
@pytest.mark.parametrize(
    ("on_server_stream", "gives_up", "here", "there"),
    [
        (_wait, True, ResetCause.ABORTED, ResetCause.PEER),
        (_fail, False, ResetCause.PEER, ResetCause.FAILED),
        (None, False, ResetCause.REFUSED_BY_PEER, ResetCause.REFUSED),
    ],
    ids=["given up", "failed", "refused"],
)
def test_the_cause_of_a_reset_is_named_at_each_end_in_log_and_metric(
    on_server_stream: None,
    gives_up: bool,  # noqa: FBT001  # a parameter of the table above
    here: ResetCause,
    there: ResetCause,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    metrics = Metrics(), Metrics()

    def told(end: Metrics, cause: ResetCause) -> bool:
        return f'blackstart_stream_resets_total{{cause="{cause}"}} 1.0' in end.render().decode()

    async def story() -> None:
        async with piped(
            on_server_stream=on_server_stream,
            client_notices=counted(metrics[0]),
            server_notices=counted(metrics[1]),
        ) as both:
            stream = both.client.open_stream()
            if gives_up:
                await until(lambda: both.server.streams_open == 1)
                stream.abort()
            else:
                await until(lambda: not both.client._mux._half_open_here)
                stream.write(b"x")
            await until(lambda: told(metrics[0], here) and told(metrics[1], there))

    asyncio.run(story())
    for end, cause in (("client", here), ("server", there)):
        assert f"tunnel {end}: stream 1 was reset ({cause})" in caplog.text


def test_every_label_is_served_from_the_start_at_zero() -> None:
    metrics = Metrics()
    assert 'cause="' not in metrics.render().decode(), "the control"
    counted(metrics)
    served = metrics.render().decode().splitlines()
    due = [f'blackstart_stream_resets_total{{cause="{cause}"}} 0.0' for cause in ResetCause]
    due += [f'blackstart_stream_stalls_total{{side="{side}"}} 0.0' for side in StallSide]
    assert [line for line in due if line not in served] == [], "an alert cannot see the first of them"


def test_every_cause_has_its_meaning() -> None:
    assert set(MEANINGS) == set(ResetCause)


def test_a_flood_of_resets_is_counted_whole_and_said_once_in_the_notice_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    told = Told()
    reporter = Reporter("busy", told.notices, quiet_s=TIMINGS.stall_notice_s)
    for stream in range(100):
        reporter.reset(stream, ResetCause.PEER, now=0.0)
    reporter.reset(7, ResetCause.ABORTED, now=0.0)
    reporter.reset(100, ResetCause.PEER, now=TIMINGS.stall_notice_s)
    assert len(told.resets) == 102
    assert [record.getMessage().partition(" (")[2][:7] for record in caplog.records] == [
        "peer): ",
        "aborted",
        "peer): ",
    ], "a line for each"
    assert "(99 more before it)" in caplog.text
