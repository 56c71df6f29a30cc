"""One tunnel, dialled again whenever it ends or is about to, and said aloud when nothing can reach this worker."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pytest

from inference_fleet.backends.serving import listen
from inference_fleet.settings import Deadline
from inference_fleet.settings.loopback import LOOPBACK
from inference_fleet.telemetry.metrics import Metrics
from inference_fleet.tunnel import Refusal, StreamRequest, request_stream
from inference_fleet.tunnel.worker import SeenEpoch, serve_streams
from inference_fleet.tunnel.yamux.windows import LOCAL_WINDOW
from inference_fleet.worker.epochs import EpochFile
from inference_fleet.worker.frontends import Rotation
from inference_fleet.worker.heartbeat import Identity
from inference_fleet.worker.tunnel import TunnelLoop

from .doubles import NODE, TIMINGS, error, frontend, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from inference_fleet.settings import Timings
    from inference_fleet.tunnel.worker import Target

IDENTITY = Identity(node_id=NODE, boot_id="boot-0001", credential="cd" * 32)


@dataclass
class Held:
    """A running tunnel loop with what it counts and remembers."""

    loop: TunnelLoop
    metrics: Metrics
    seen: SeenEpoch
    epochs: EpochFile

    def dials(self, outcome: str) -> float:
        return (
            self.metrics.registry.get_sample_value("blackstart_reconnects_total", {"outcome": outcome}) or 0.0
        )


@asynccontextmanager
async def held(
    tmp_path: Path, *urls: str, target_port: int = 1, draw: float = 0.0, timings: Timings = TIMINGS
) -> AsyncIterator[Held]:
    def resolve(tag: str, target: str, process_key: str | None) -> Target | Refusal:
        del target, process_key
        return (LOOPBACK, target_port) if tag == "http" else Refusal.UNAVAILABLE

    epochs = EpochFile(tmp_path / "credential")
    seen = epochs.load()
    metrics = Metrics()
    tunnel = TunnelLoop(
        identity=IDENTITY,
        rotation=Rotation(urls, node_name="w0"),
        on_stream=serve_streams(node=NODE, seen=seen, resolve=resolve, timings=TIMINGS),
        seen=seen,
        epochs=epochs,
        timings=timings,
        metrics=metrics,
        draw=lambda: draw,
    )
    running = asyncio.create_task(tunnel.run())
    try:
        yield Held(tunnel, metrics, seen, epochs)
    finally:
        if not running.done():
            tunnel.leave(Deadline.after(TIMINGS.drain_wait_s))
        done, _ = await asyncio.wait({running}, timeout=TIMINGS.shutdown_s)
        running.cancel()
        assert done, "it still runs past its deadline"
        running.result()
        assert tunnel.streams_open == 0


@asynccontextmanager
async def service() -> AsyncIterator[int]:
    """A loopback service that says hello and then listens for ever."""
    writers: list[asyncio.StreamWriter] = []

    async def hello(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        writer.write(b"hello")

    with listen(LOOPBACK, 0) as listener:
        server = await asyncio.start_server(hello, sock=listener)
        try:
            yield listener.getsockname()[1]
        finally:
            for writer in writers:
                writer.transport.abort()
            server.close()
            await server.wait_closed()


@pytest.mark.holds("B-35")
def test_a_dial_shows_credential_boot_and_the_highest_epoch_seen(tmp_path: Path) -> None:
    async def story() -> None:
        EpochFile(tmp_path / "credential").keep(SeenEpoch(value=41))
        async with frontend() as double:
            double.epoch = 41
            async with held(tmp_path, double.url) as worker:
                await until(lambda: worker.loop.connected)
                (dial,) = double.dials

                assert dial["authorization"] == f"Bearer {IDENTITY.credential}"
                assert dial["x-blackstart-boot"] == IDENTITY.boot_id
                assert dial["x-blackstart-seen-epoch"] == "41"
                assert worker.seen.value == 42
                await until(lambda: worker.epochs.load().value == 42)
                assert worker.dials("connected") == 1

    asyncio.run(story())


@pytest.mark.holds("B-35", "B-95")
def test_a_401_names_both_causes_says_that_nothing_can_reach_us_and_does_not_register(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        async with frontend() as double:
            double.dialling.extend(error(401, "unauthorized", f"not {IDENTITY.credential}") for _ in range(3))
            async with held(tmp_path, double.url) as worker:
                await until(lambda: len(double.dials) == 3)
                assert not worker.loop.connected
                await until(lambda: worker.loop.connected)
            assert not double.registrations
            assert worker.dials("unauthorized") == 3

    asyncio.run(story())
    assert "another worker registered under this node's name" in caplog.text
    assert "ours was revoked" in caplog.text
    assert "Nothing can reach this worker" in caplog.text
    assert IDENTITY.credential not in caplog.text


@pytest.mark.holds("T-17", "T-76")
def test_a_stream_that_its_replica_resets_is_counted_here_by_its_cause(tmp_path: Path) -> None:
    async def story() -> None:
        async with frontend() as double, held(tmp_path, double.url) as worker:
            await until(lambda: bool(double.sessions) and worker.loop.connected)
            stream = double.sessions[0].open_stream()
            stream.write((32).to_bytes(4, "big") + b"half a request")
            await until(lambda: worker.loop.streams_open == 1)
            stream.abort()
            name, cause = "blackstart_stream_resets_total", {"cause": "peer"}
            await until(lambda: worker.loop.streams_open == 0)
            assert worker.metrics.registry.get_sample_value(name, cause) == 1, (
                "nothing here counted the reset"
            )

    asyncio.run(story())


@pytest.mark.holds("B-67")
def test_much_that_a_worker_receives_grows_its_window(tmp_path: Path) -> None:
    much = 300 * 1024
    taken: list[int] = []

    async def take(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        taken.append(len(await reader.readexactly(much)))
        await reader.read()

    async def story() -> int:
        local = replace(TIMINGS, local_round_trip_s=TIMINGS.start_s)
        with listen(LOOPBACK, 0) as listener:
            server = await asyncio.start_server(take, sock=listener)
            port = listener.getsockname()[1]
            async with (
                server,
                frontend() as double,
                held(tmp_path, double.url, target_port=port, timings=local) as one,
            ):
                await until(lambda: bool(double.sessions) and one.loop.connected)
                request = StreamRequest(tag="http", node=NODE, epoch=double.epoch)
                stream = await request_stream(
                    double.sessions[0], request, deadline=Deadline.after(TIMINGS.start_s)
                )
                stream.write(bytes(much))
                await until(lambda: taken == [much])
                (session,) = one.loop._sessions
                window = max(state.window for state in session._mux._streams.values())
                stream.abort()
                return window

    assert asyncio.run(story()) == LOCAL_WINDOW, "a worker's window is still the first one"


def test_a_conflict_of_boots_is_named_and_waits_as_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> float:
        async with frontend() as double:
            double.dialling.append(error(409, "boot_conflict", "held by boot-0002", Retry_After="1"))
            loop = asyncio.get_running_loop()
            begun = loop.time()
            async with held(tmp_path, double.url) as worker:
                await until(lambda: worker.loop.connected)
                assert worker.dials("conflict") == 1
                return loop.time() - begun

    assert asyncio.run(story()) >= 1
    assert "held by boot-0002" in caplog.text
    assert f"another boot of this node holds the tunnel; this boot is {IDENTITY.boot_id}" in caplog.text


@pytest.mark.parametrize(
    ("code", "named"),
    [
        ("epoch_leap", "which the fleet's database cannot have given out"),
        ("from_the_future", "a conflict this worker does not know (from_the_future)"),
    ],
)
def test_a_conflict_that_is_not_about_boots_is_named_by_its_own_code(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, code: str, named: str
) -> None:
    async def story() -> None:
        async with frontend() as double:
            double.dialling.append(error(409, code, "as it was said", Retry_After="0"))
            async with held(tmp_path, double.url) as worker:
                await until(lambda: worker.loop.connected)
                assert (worker.dials("conflict"), worker.dials("refused")) == (0, 1)

    asyncio.run(story())
    assert named in caplog.text
    assert "as it was said" in caplog.text
    assert "another boot" not in caplog.text, "a conflict was taken for one of boots"


def test_an_address_that_does_not_answer_is_left_for_the_next(tmp_path: Path) -> None:
    async def story() -> None:
        async with frontend() as double:
            for urls in (("http://127.0.0.1:1", double.url), (double.url, "http://127.0.0.1:1")):
                async with held(tmp_path, *urls) as worker:
                    await until(lambda: worker.loop.connected)

    asyncio.run(story())


def test_a_tunnel_that_dies_is_dialled_again_and_reads_as_down_meanwhile(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        async with frontend() as double, held(tmp_path, double.url) as worker:
            await until(lambda: worker.loop.connected)
            double.dialling.append(error(503, "starting"))
            await double.sessions[0].close()
            await until(lambda: not worker.loop.connected)
            assert worker.loop.why_not
            await until(lambda: worker.loop.connected)

            assert worker.seen.value == 2
            assert worker.dials("refused") == 1

    asyncio.run(story())
    assert "HTTP 503" in caplog.text


@pytest.mark.holds("B-34")
def test_after_a_go_away_another_tunnel_is_dialled_at_once_and_running_streams_finish_on_the_old(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        async with (
            frontend() as double,
            service() as port,
            held(tmp_path, double.url, target_port=port) as worker,
        ):
            await until(lambda: worker.loop.connected)
            stream = await double.stream("http")
            assert await stream.read_exactly(5, deadline=_soon()) == b"hello"

            double.sessions[0].go_away("restarting")
            await until(lambda: len(double.sessions) == 2 and worker.loop.connected)
            assert not stream.is_closing(), "what runs goes on"
            assert worker.loop.streams_open == 1
            stream.abort()
            await until(lambda: worker.loop.streams_open == 0)

    asyncio.run(story())


def test_the_go_away_of_an_idle_tunnel_is_not_its_death(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        async with frontend() as double, held(tmp_path, double.url) as worker:
            await until(lambda: worker.loop.connected)
            double.sessions[0].go_away("restarting")
            await until(lambda: len(double.sessions) == 2 and worker.loop.connected)

    asyncio.run(story())
    assert "the session ended" not in caplog.text, "a go-away was taken for a death"


def test_a_session_that_lasted_and_is_told_to_go_makes_the_failures_before_it_forgotten(
    tmp_path: Path,
) -> None:
    soon = replace(TIMINGS, reconnect_reset_after_s=1e-6)  # any session has lasted

    async def story() -> None:
        async with frontend() as double, held(tmp_path, double.url, timings=soon) as worker:
            await until(lambda: worker.loop.connected)
            worker.loop._schedule._failures = 9
            double.sessions[0].go_away("restarting")
            await until(lambda: len(double.sessions) == 2 and worker.loop.connected)
            assert worker.loop._schedule._failures == 1, "failures of long ago lengthen the next wait"

    asyncio.run(story())


@pytest.mark.holds("B-34")
def test_a_stream_that_does_not_end_after_a_go_away_is_cut_in_time(tmp_path: Path) -> None:
    async def story() -> None:
        async with (
            frontend() as double,
            service() as port,
            held(tmp_path, double.url, target_port=port) as worker,
        ):
            await until(lambda: worker.loop.connected)
            stream = await double.stream("http")
            double.sessions[0].go_away("restarting")
            await until(lambda: len(double.sessions) == 2)
            assert not stream.is_closing(), "the control: it ran when the next tunnel stood"
            await until(lambda: double.sessions[0].ending is not None)
            assert worker.loop.streams_open == 0

    asyncio.run(story())


@pytest.mark.holds("B-34")
def test_a_leaving_worker_reads_as_down_while_its_streams_still_run(tmp_path: Path) -> None:
    async def story() -> None:
        async with (
            frontend() as double,
            service() as port,
            held(tmp_path, double.url, target_port=port) as worker,
        ):
            await until(lambda: worker.loop.connected)
            stream = await double.stream("http")
            worker.loop.leave(Deadline.after(TIMINGS.drain_wait_s))

            assert not worker.loop.connected
            await until(lambda: not double.sessions[0].connected)
            assert worker.loop.streams_open == 1
            stream.abort()
            await until(lambda: double.sessions[0].ending is not None)
            assert len(double.dials) == 1, "it does not dial again"

    asyncio.run(story())


def test_a_leaving_worker_cuts_what_does_not_end_by_its_deadline(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> float:
        async with frontend() as double, service() as port:
            async with held(tmp_path, double.url, target_port=port) as worker:
                await until(lambda: worker.loop.connected)
                stream = await double.stream("http")
                loop = asyncio.get_running_loop()
                begun = loop.time()
                worker.loop.leave(Deadline.after(TIMINGS.reconnect_backoff_min_s))
                while not stream.is_closing():
                    assert loop.time() - begun < TIMINGS.shutdown_s, "the stream still runs past its deadline"
                    await asyncio.sleep(TIMINGS.backend_poll_s)
            return loop.time() - begun

    assert asyncio.run(story()) < TIMINGS.shutdown_s
    assert "1 streams did not end in time and are cut" in caplog.text


def test_leaving_during_a_dial_that_hangs_returns_at_once(tmp_path: Path) -> None:
    async def story() -> float:
        loop = asyncio.get_running_loop()
        with listen(LOOPBACK, 0) as mute:  # takes the connection and never answers
            async with held(tmp_path, f"http://{LOOPBACK}:{mute.getsockname()[1]}"):
                await asyncio.sleep(0)
                begun = loop.time()
            return loop.time() - begun

    assert asyncio.run(story()) < TIMINGS.handshake_s


def _soon() -> Deadline:
    return Deadline.after(TIMINGS.stream_open_s)
