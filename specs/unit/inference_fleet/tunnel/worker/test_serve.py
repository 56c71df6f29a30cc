from __future__ import annotations

import asyncio
import errno
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from specs.unit.inference_fleet.logged import lines_of

from inference_fleet.settings import Deadline
from inference_fleet.tunnel import (
    Refusal,
    StreamRefused,
    StreamRequest,
    read_reply,
    request_stream,
    write_frame,
)
from inference_fleet.tunnel.worker import SeenEpoch, serve_streams
from inference_fleet.tunnel.worker import serve as serve_module
from inference_fleet.tunnel.worker.serve import backend_port, classify

from ..linked import TIMINGS, Collector, soon, until, within  # noqa: TID252  # specs share aids by folder
from ..piped import Piped, piped  # noqa: TID252  # see above
from ..services import answer_after_eof, refusing_port, service  # noqa: TID252  # see above

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from inference_fleet.settings import Timings
    from inference_fleet.tunnel.worker import Target

NODE, EPOCH = "node-1", 7


def _request(**changes: object) -> StreamRequest:
    fields: dict[str, object] = {
        "tag": "backend",
        "target": "127.0.0.1:20051",
        "process_key": "babbler#0",
        "node": NODE,
        "epoch": EPOCH,
        **changes,
    }
    return StreamRequest(**fields)  # type: ignore[arg-type]  # a spec's own words


@asynccontextmanager
async def _worker(
    answer: Target | Refusal | Exception, *, timings: Timings = TIMINGS, seen: int = EPOCH
) -> AsyncIterator[tuple[Piped, list[tuple[str, str, str | None]]]]:
    asked: list[tuple[str, str, str | None]] = []

    def resolve(tag: str, target: str, process_key: str | None) -> Target | Refusal:
        asked.append((tag, target, process_key))
        if isinstance(answer, Exception):
            raise answer
        return answer

    serve = serve_streams(node=NODE, seen=SeenEpoch(value=seen), resolve=resolve, timings=timings)
    async with piped(on_client_stream=serve) as both:
        yield both, asked


async def _refusal(both: Piped, request: StreamRequest) -> StreamRefused:
    with pytest.raises(StreamRefused) as caught:
        await request_stream(both.server, request, deadline=soon())
    return caught.value


@pytest.mark.holds("B-37")
def test_an_accepted_stream_is_spliced_to_the_resolved_loopback_port() -> None:
    async def story() -> None:
        async with service(answer_after_eof) as port, _worker(("127.0.0.1", port)) as (both, asked):
            stream = await request_stream(both.server, _request(), deadline=soon())
            seen = Collector()
            stream.set_protocol(seen)
            stream.write(b"12345")
            stream.write_eof()
            await within(seen.lost)
            assert bytes(seen.data) == b"got 5"
            assert asked == [("backend", "127.0.0.1:20051", "babbler#0")]

    asyncio.run(story())


def test_the_tag_http_goes_to_the_workers_own_server_and_names_no_target() -> None:
    async def story() -> None:
        async with service(answer_after_eof) as port, _worker(("127.0.0.1", port)) as (both, asked):
            stream = await request_stream(
                both.server, _request(tag="http", target="", process_key=None), deadline=soon()
            )
            stream.abort()
            assert asked == [("http", "", None)]

    asyncio.run(story())


@pytest.mark.holds("B-38", "T-23")
@pytest.mark.parametrize(
    ("changes", "refusal"),
    [
        ({"tag": "grpc"}, Refusal.TAG_UNKNOWN),
        ({"target": "127.0.0.1"}, Refusal.INVALID),
        ({"target": "127.0.0.1:0"}, Refusal.INVALID),
        ({"target": "127.0.0.1:65536"}, Refusal.INVALID),
        ({"target": "10.0.0.1:80"}, Refusal.INVALID),
        ({"target": "localhost:80"}, Refusal.INVALID),
        ({"target": ""}, Refusal.INVALID),
        ({"process_key": None}, Refusal.INVALID),
        ({"process_key": ""}, Refusal.INVALID),
        ({"tag": "http"}, Refusal.INVALID),
        ({"tag": "\x01" * 64}, Refusal.TAG_UNKNOWN),
        ({"target": "\x01" * 320}, Refusal.INVALID),
        ({"tag": "http", "target": "\x01" * 320}, Refusal.INVALID),
        ({"epoch": EPOCH - 1}, Refusal.STALE_EPOCH),
        ({"node": "another"}, Refusal.NOT_SERVED),
        ({"v": 2}, Refusal.NOT_SERVED),
    ],
    ids=str,
)
def test_what_does_not_fit_is_refused_before_anything_is_resolved(
    changes: dict[str, object], refusal: Refusal
) -> None:
    async def story() -> None:
        async with _worker(("127.0.0.1", 1)) as (both, asked):
            refused = await _refusal(both, _request(**changes))
            assert refused.refusal is refusal
            assert "; try: " in refused.message, f"no remedy: {refused.message}"
            assert asked == []

    asyncio.run(story())


def test_the_epoch_seen_here_and_any_later_one_is_served() -> None:
    async def story() -> None:
        async with service(answer_after_eof) as port, _worker(("127.0.0.1", port)) as (both, _):
            for epoch in (EPOCH, EPOCH + 1000):
                (await request_stream(both.server, _request(epoch=epoch), deadline=soon())).abort()
            (await request_stream(both.server, _request(), deadline=soon())).abort()

    asyncio.run(story())


def test_only_dials_teach_the_highest_epoch_and_it_never_falls() -> None:
    seen = SeenEpoch()
    for epoch in (5, 9, 3):
        seen.learn(epoch)
    assert seen.value == 9


@pytest.mark.holds("B-46", "B-253")
@pytest.mark.parametrize("refusal", list(Refusal))
def test_a_refusal_of_the_resolver_keeps_its_code(refusal: Refusal) -> None:
    async def story() -> None:
        async with _worker(refusal) as (both, _):
            assert (await _refusal(both, _request())).refusal is refusal
        async with _worker(StreamRefused(refusal.value, "raised")) as (both, _):
            refused = await _refusal(both, _request())
            assert (refused.refusal, refused.message) == (refusal, "raised")

    asyncio.run(story())


@pytest.mark.parametrize("broken", [None, "", "00-a-b-01", "x" * 128], ids=["none", "empty", "short", "long"])
def test_what_a_worker_logs_of_a_stream_carries_the_trace_it_came_with_and_never_a_broken_one(
    broken: str | None,
) -> None:
    trace, span = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"

    async def story() -> None:
        async with _worker(Refusal.UNAVAILABLE) as (both, asked):
            for traceparent in (f"00-{trace}-{span}-01", broken):
                assert (
                    await _refusal(both, _request(traceparent=traceparent))
                ).refusal is Refusal.UNAVAILABLE
            assert len(asked) == 2, "a trace changes nothing but the log"

    with lines_of("inference_fleet.tunnel.worker.serve") as lines:
        asyncio.run(story())
    assert [line["message"].partition(": no ")[0] for line in lines()] == [
        "refused a stream: unavailable"
    ] * 2
    told = [{key: line.get(key) for key in ("node", "epoch", "trace", "span")} for line in lines()]
    about = {"node": NODE, "epoch": EPOCH}
    assert told[0] == {**about, "trace": trace, "span": span}, "the trace ends at the tunnel"
    assert told[1:] == [{**about, "trace": None, "span": None}], (
        "the control: no trace, or a broken one, is none"
    )


@pytest.mark.holds("B-42")
def test_a_failing_resolver_is_not_served_and_never_evidence() -> None:
    async def story() -> None:
        async with _worker(ZeroDivisionError("a bug of the worker")) as (both, _):
            refused = await _refusal(both, _request())
            assert (refused.refusal, refused.evidence) == (Refusal.NOT_SERVED, False)
            assert both.client.connected

    asyncio.run(story())


@pytest.mark.holds("B-42")
def test_a_request_that_comes_too_late_is_not_served_and_a_malformed_one_is_invalid() -> None:
    async def story() -> None:
        hasty = replace(TIMINGS, stream_header_s=TIMINGS.stream_header_s / 50)
        async with _worker(Refusal.UNAVAILABLE, timings=hasty) as (both, asked):
            slow = both.server.open_stream()
            slow.write(b"\x00\x00")
            with pytest.raises(StreamRefused) as late:
                await read_reply(slow, deadline=soon())
            assert late.value.refusal is Refusal.NOT_SERVED
            assert "2 of 4 bytes came in time; try: " in late.value.message
            silent = both.server.open_stream()
            with pytest.raises(StreamRefused) as nothing:
                await read_reply(silent, deadline=soon())
            assert nothing.value.refusal is Refusal.NOT_SERVED
            for raw in (b"\xff\xff\xff\xff", b"\x00\x00\x00\x00", b"\x00\x00\x00\x03{}}"):
                broken = both.server.open_stream()
                broken.write(raw)
                with pytest.raises(StreamRefused) as malformed:
                    await read_reply(broken, deadline=soon())
                assert malformed.value.refusal is Refusal.INVALID
                assert "; try: " in malformed.value.message
            garbled = both.server.open_stream()
            write_frame(garbled, b"not json")
            with pytest.raises(StreamRefused) as caught:
                await read_reply(garbled, deadline=soon())
            assert caught.value.refusal is Refusal.INVALID
            assert "; try: " in caught.value.message
            assert asked == []

    asyncio.run(story())


@pytest.mark.holds("B-45")
def test_a_refused_connection_is_unavailable() -> None:
    async def story() -> None:
        async with _worker(("127.0.0.1", refusing_port())) as (both, _):
            refused = await _refusal(both, _request())
            assert (refused.refusal, refused.evidence) == (Refusal.UNAVAILABLE, True)

    asyncio.run(story())


@pytest.mark.holds("B-45")
@pytest.mark.parametrize(
    ("error", "refusal"),
    [
        (ConnectionRefusedError(errno.ECONNREFUSED, "refused"), Refusal.UNAVAILABLE),
        (OSError(errno.ENETUNREACH, "unreachable"), Refusal.UNAVAILABLE),
        (OSError(errno.EACCES, "denied"), Refusal.UNAVAILABLE),
        (OSError("no errno at all"), Refusal.UNAVAILABLE),
        (TimeoutError(), Refusal.NOT_SERVED),
        (OSError(errno.ETIMEDOUT, "timed out"), Refusal.NOT_SERVED),
        (OSError(errno.EAGAIN, "again"), Refusal.NOT_SERVED),
        (OSError(errno.EMFILE, "too many files"), Refusal.NOT_SERVED),
        (OSError(errno.EADDRNOTAVAIL, "no port left"), Refusal.NOT_SERVED),
    ],
    ids=repr,
)
def test_a_failed_connect_is_evidence_unless_it_reports_a_timeout_or_the_workers_own_want(
    error: OSError, refusal: Refusal
) -> None:
    assert classify(error) is refusal


@pytest.mark.holds("B-45")
def test_its_own_timeout_and_its_own_cancellation_are_not_served(monkeypatch: pytest.MonkeyPatch) -> None:
    connecting = asyncio.Event()

    async def hang(host: str, port: int, *, within_s: float) -> asyncio.Transport:
        connecting.set()
        async with asyncio.timeout(within_s):
            await asyncio.Event().wait()
        raise AssertionError(f"{host}:{port} was never reached")

    monkeypatch.setattr(serve_module, "connect_loopback", hang)

    async def story() -> None:
        hasty = replace(TIMINGS, backend_connect_s=TIMINGS.backend_connect_s / 50)
        async with _worker(("127.0.0.1", 1), timings=hasty) as (both, _):
            assert (await _refusal(both, _request())).refusal is Refusal.NOT_SERVED
        connecting.clear()
        async with _worker(("127.0.0.1", 1)) as (both, _):
            asking = asyncio.create_task(request_stream(both.server, _request(), deadline=soon()))
            await within(connecting.wait())
            (handler,) = both.client._handlers.tasks
            handler.cancel()
            with pytest.raises(StreamRefused) as caught:
                await asking
            assert caught.value.refusal is Refusal.NOT_SERVED

    asyncio.run(story())


def test_a_caller_that_hangs_up_while_the_worker_connects_leaves_nothing_behind() -> None:
    async def story() -> None:
        accepted: list[asyncio.StreamWriter] = []

        async def wait(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            accepted.append(writer)
            await reader.read()

        async with service(wait) as port, _worker(("127.0.0.1", port)) as (both, _):
            stream = both.server.open_stream()
            write_frame(stream, _request().encode())
            await until(lambda: bool(accepted))
            stream.abort()
            await until(lambda: not both.client.streams_open)
            await until(lambda: not both.client._handlers.tasks)

    asyncio.run(story())


async def _echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while piece := await reader.read(1000):
        writer.write(piece)


def test_a_stream_past_its_handshake_has_no_task_and_still_passes_both_ways() -> None:
    async def story() -> None:
        async with service(_echo) as port, _worker(("127.0.0.1", port)) as (both, _):
            stream = await request_stream(both.server, _request(), deadline=soon())
            seen = Collector()
            stream.set_protocol(seen)
            await until(lambda: not both.client._handlers.tasks)
            stream.write(b"still here")
            await until(lambda: bytes(seen.data) == b"still here")
            stream.abort()
            await until(lambda: not both.client.streams_open)

    asyncio.run(story())


def test_a_session_that_is_cancelled_takes_the_connections_of_its_streams_with_it() -> None:
    async def story() -> None:
        ended = asyncio.Event()

        async def wait(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
            with pytest.raises(ConnectionResetError):
                await reader.read()
            ended.set()

        async with service(wait) as port, _worker(("127.0.0.1", port)) as (both, _):
            await request_stream(both.server, _request(), deadline=soon())
            joints = both.client._handlers._joints
            await until(lambda: len(joints) == 1)
            both.client_run.cancel()
            await asyncio.wait([both.client_run])
            assert not joints, "a splice outlives its session"
            await within(ended.wait())

    asyncio.run(story())


def test_the_refused_stream_and_its_reply_need_no_reset() -> None:
    async def story() -> None:
        async with _worker(Refusal.UNAVAILABLE) as (both, _):
            for _ in range(5):
                await _refusal(both, _request())
            assert await both.server.drained(Deadline.after(TIMINGS.stream_linger_s / 2))
            assert await both.client.drained(Deadline.after(TIMINGS.stream_linger_s / 2))

    asyncio.run(story())


@pytest.mark.parametrize("port", [1, 20051, 65535])
def test_a_target_names_a_port_on_the_workers_loopback(port: int) -> None:
    assert backend_port(f"127.0.0.1:{port}") == port


def test_the_callers_budget_shortens_the_connect_and_nothing_lengthens_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given: list[float] = []

    async def connect(host: str, port: int, *, within_s: float) -> asyncio.Transport:
        del host, port
        given.append(within_s)
        raise TimeoutError

    monkeypatch.setattr(serve_module, "connect_loopback", connect)
    own_s = TIMINGS.backend_connect_s

    async def story() -> None:
        async with _worker(("127.0.0.1", 1)) as (both, _):
            for budget_s in (own_s / 10, own_s * 10):
                request = _request(budget_ms=round(budget_s * 1000))
                assert (await _refusal(both, request)).refusal is Refusal.NOT_SERVED
            await _refusal(both, _request())

    asyncio.run(story())
    short, long, none = given
    assert short <= own_s / 10, "the caller's budget does not bound the connect"
    # the control: a larger one, or none, leaves the worker's own limit
    assert own_s / 2 < long <= own_s
    assert own_s / 2 < none <= own_s
