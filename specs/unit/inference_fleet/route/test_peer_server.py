"""The owner's end of a relay: what it opens, what it refuses and in whose words."""

from __future__ import annotations

import asyncio
import contextlib
import json
import struct
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from specs.unit.inference_fleet.logged import lines_of

from inference_fleet.route import PeerServer, RelayRequest
from inference_fleet.settings import Deadline
from inference_fleet.tunnel import (
    Refusal,
    Session,
    SessionDead,
    StreamRefused,
    StreamRequest,
    read_reply,
    refuse_stream_as,
    write_frame,
)

from .piped import TIMINGS, pipe, until
from .routed import exchanged, town, tunnel

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from inference_fleet.tunnel import Stream

    from .routed import House


def soon() -> Deadline:
    return Deadline.after(TIMINGS.request_s)


@contextlib.asynccontextmanager
async def peer_of(house: House, name: str = "asker") -> AsyncIterator[Session]:
    """A peer's session on an accepted link."""
    near, far = pipe()
    serving = asyncio.create_task(house.server.serve(far, peer=name))
    session = Session(near, client=True, timings=TIMINGS, name=name)
    running = asyncio.create_task(session.run())
    await until(lambda: house.server.sessions)
    try:
        yield session
    finally:
        await session.close()
        await asyncio.gather(running, serving)


async def ask(session: Session, **changes: Any) -> Stream:
    """Send one relay frame and wait for its one reply."""
    stream = sent(session, **changes)
    await read_reply(stream, deadline=soon())
    return stream


def sent(session: Session, *, origin: str = "asker", payload: bytes | None = None, **changes: Any) -> Stream:
    """Send one relay frame."""
    fields: dict[str, Any] = {"tag": "backend", "target": "127.0.0.1:1", "node": "n", "epoch": 7, **changes}
    stream = session.open_stream()
    frame = RelayRequest(origin, StreamRequest(**fields)).encode() if payload is None else payload
    write_frame(stream, frame, limit=8192)
    return stream


@pytest.mark.holds("B-43")
def test_the_workers_request_is_opened_at_once_and_every_byte_is_counted() -> None:
    async def story() -> None:
        async with (
            town("a") as (_, houses),
            tunnel(houses["a"], epoch=7) as held,
            peer_of(houses["a"]) as peer,
        ):
            stream = await ask(peer, process_key="m#1", traceparent="00-a-b-01")
            assert await exchanged(stream, b"12345678") == b"12345678"
            (request,) = held.requests
            assert (request.target, request.process_key, request.traceparent) == (
                "127.0.0.1:1",
                "m#1",
                "00-a-b-01",
            )
            assert houses["a"].metrics.relayed_bytes._value.get() == 16
            stream.abort()
            await until(lambda: held.held.session.streams_open == 0)

    asyncio.run(story())


@pytest.mark.holds("B-44", "B-43")
def test_a_slow_peer_costs_the_worker_nothing_not_even_an_open_stream() -> None:
    quick = replace(TIMINGS, relay_frame_s=TIMINGS.instance_beat_s)

    async def story() -> None:
        async with (
            town("a", timings=quick) as (_, houses),
            tunnel(houses["a"], epoch=7) as held,
            peer_of(houses["a"]) as peer,
        ):
            stream = peer.open_stream()
            stream.write(struct.pack(">I", 100) + b"{")  # the rest of the frame never comes
            with pytest.raises(StreamRefused) as caught:
                await read_reply(stream, deadline=soon())
            assert (caught.value.refusal, caught.value.evidence) == (Refusal.NOT_SERVED, False)
            assert held.requests == [], "no worker's header timer ever ran for it"
            (await ask(peer)).abort()
            assert len(held.requests) == 1, "the control: a whole frame opens the worker's stream"

    asyncio.run(story())


@pytest.mark.holds("B-63")
def test_what_is_not_held_here_is_refused_and_never_passed_on() -> None:
    async def story() -> None:
        async with (
            town("a", "c") as (owners, houses),
            tunnel(houses["c"], epoch=7),
            peer_of(houses["a"]) as peer,
        ):
            with pytest.raises(StreamRefused) as caught:
                await ask(peer)
            assert caught.value.refusal is Refusal.NOT_OWNER
            assert (owners.asked, houses["a"].dials) == (0, 0), "the owner neither looks nor dials for a peer"

    asyncio.run(story())


def test_another_epoch_is_a_stale_owner_and_no_verdict() -> None:
    async def story() -> None:
        async with (
            town("a") as (_, houses),
            tunnel(houses["a"], epoch=8) as held,
            peer_of(houses["a"]) as peer,
        ):
            for epoch in (7, 9):
                with pytest.raises(StreamRefused) as caught:
                    await ask(peer, epoch=epoch)
                assert caught.value.refusal is Refusal.STALE_EPOCH
            assert held.requests == []

    asyncio.run(story())


@pytest.mark.parametrize("broken", [None, "", "00-a-b-01", "x" * 128], ids=["none", "empty", "short", "long"])
def test_what_an_owner_logs_of_a_relay_carries_the_trace_it_came_with_and_never_a_broken_one(
    broken: str | None,
) -> None:
    trace, span = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"

    async def story() -> None:
        async with town("a") as (_, houses), peer_of(houses["a"]) as peer:
            for traceparent in (f"00-{trace}-{span}-01", broken):
                with pytest.raises(StreamRefused) as caught:
                    await ask(peer, traceparent=traceparent)
                assert caught.value.refusal is Refusal.NOT_OWNER, "a trace changes nothing but the log"

    with lines_of("inference_fleet.route.peer_server") as lines:
        asyncio.run(story())
    told = [{key: line.get(key) for key in ("node", "epoch", "trace", "span")} for line in lines()]
    about = {"node": "n", "epoch": 7}
    assert told[0] == {**about, "trace": trace, "span": span}, "the trace ends at the peer link"
    assert told[1:] == [{**about, "trace": None, "span": None}], (
        "the control: no trace, or a broken one, is none"
    )


def test_a_second_hop_or_a_borrowed_name_is_not_served() -> None:
    async def story() -> None:
        async with (
            town("a") as (_, houses),
            tunnel(houses["a"], epoch=7) as held,
            peer_of(houses["a"]) as peer,
        ):
            frame = json.loads(RelayRequest("asker", StreamRequest(tag="http", node="n", epoch=7)).encode())
            frame["relay"]["hop"] = 2
            for attempt in (ask(peer, payload=json.dumps(frame).encode()), ask(peer, origin="somebody-else")):
                with pytest.raises(StreamRefused) as caught:
                    await attempt
                assert (caught.value.refusal, caught.value.evidence) == (Refusal.NOT_SERVED, False)
            assert held.requests == []

    asyncio.run(story())


def test_the_workers_words_pass_unchanged_also_those_nobody_here_knows() -> None:
    async def story(code: str, label: str) -> StreamRefused:
        async def refuse(stream: Stream, _request: StreamRequest) -> None:
            refuse_stream_as(stream, code, "as it was said")

        async with (
            town("a") as (_, houses),
            tunnel(houses["a"], epoch=7, serve=refuse),
            peer_of(houses["a"]) as peer,
        ):
            with pytest.raises(StreamRefused) as caught:
                await ask(peer)
            assert houses["a"].refusals() == {label: 1}
            return caught.value

    for code, label in (
        ("unavailable", "unavailable"),
        ("not-served", "not-served"),
        ("from-the-future", "unknown"),
    ):
        refused = asyncio.run(story(code, label))
        assert (refused.code, refused.message) == (code, "as it was said")


def test_a_refusal_is_counted_as_sent_only_to_a_peer_that_still_listens(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def silent(stream: Stream, _request: StreamRequest) -> None:
        await stream.read_exactly(1, deadline=soon())

    async def story(*, gives_up: bool) -> dict[str, float]:
        caplog.clear()
        async with (
            town("a") as (_, houses),
            tunnel(houses["a"], epoch=7, serve=silent) as held,
            peer_of(houses["a"]) as peer,
        ):
            stream = sent(peer)
            await until(lambda: held.requests)
            (link,) = houses["a"].server.sessions
            if gives_up:
                stream.abort()
                await until(lambda: not link.streams_open)
            held.worker._carrier.abort()
            await until(lambda: "refused a relay: not-served" in caplog.text)
            return houses["a"].refusals()

    with caplog.at_level("INFO", logger="inference_fleet.route.peer_server"):
        assert asyncio.run(story(gives_up=False)) == {"not-served": 1}
        assert asyncio.run(story(gives_up=True)) == {}, "nobody was sent this refusal"


@pytest.mark.holds("B-62")
def test_the_callers_budget_only_shortens_the_owners_own_limit() -> None:
    async def silent(stream: Stream, _request: StreamRequest) -> None:
        await stream.read_exactly(1, deadline=soon())

    async def waited(budget_ms: int | None, open_s: float) -> float:
        quick = replace(TIMINGS, stream_open_s=open_s)
        async with (
            town("a", timings=quick) as (_, houses),
            tunnel(houses["a"], epoch=7, serve=silent) as held,
            peer_of(houses["a"]) as peer,
        ):
            loop = asyncio.get_running_loop()
            started = loop.time()
            with pytest.raises(StreamRefused) as caught:
                await ask(peer, budget_ms=budget_ms)
            assert caught.value.refusal is Refusal.NOT_SERVED
            told_ms = held.requests[0].budget_ms
            assert (told_ms is None) == (budget_ms is None)
            assert (told_ms or 0) <= (budget_ms or 0)
            return loop.time() - started

    short, long = TIMINGS.instance_beat_s, TIMINGS.instance_liveness_s
    assert asyncio.run(waited(int(short * 1000), long)) < long, "a shorter budget shortens"
    assert asyncio.run(waited(int(long * 1000), short)) < long, "a longer budget does not lengthen"
    assert asyncio.run(waited(None, short)) < long, "no budget is none, not zero"


@pytest.mark.holds("B-62")
def test_what_a_frame_took_to_come_in_is_gone_from_the_budget_the_worker_is_told() -> None:
    budget_ms = int(TIMINGS.request_s * 1000)
    readings = [0.0]

    def clock() -> float:
        readings.append(readings[-1])
        return readings[-1]

    async def story() -> None:
        async with town("a") as (_, houses), tunnel(houses["a"], epoch=7) as held:
            houses["a"].server = PeerServer(
                table=houses["a"].table, timings=TIMINGS, metrics=houses["a"].metrics, clock=clock
            )
            async with peer_of(houses["a"]) as peer:
                (await ask(peer, budget_ms=budget_ms)).abort()  # the control: nothing passed, nothing is gone
                asked = len(readings)
                fields: dict[str, Any] = {"tag": "backend", "target": "127.0.0.1:1", "node": "n", "epoch": 7}
                request = StreamRequest(**fields, budget_ms=budget_ms)
                frame = RelayRequest("asker", request).encode()
                stream = peer.open_stream()
                stream.write(struct.pack(">I", len(frame)) + frame[:1])
                await until(lambda: len(readings) > asked)
                readings.append(TIMINGS.stream_open_s)
                stream.write(frame[1:])
                await read_reply(stream, deadline=soon())
                stream.abort()
            passed_ms = int(TIMINGS.stream_open_s * 1000)
            told = [request.budget_ms for request in held.requests]
            assert told == [budget_ms, budget_ms - passed_ms], "the worker was told of time that had passed"

    asyncio.run(story())


def test_a_peer_that_hangs_up_resets_the_workers_stream() -> None:
    async def story() -> None:
        async with town("a") as (_, houses), tunnel(houses["a"], epoch=7) as held:
            async with peer_of(houses["a"]) as peer:
                stream = await ask(peer)
                assert await exchanged(stream) == b"ping"
                assert held.held.session.streams_open == 1
            await until(lambda: held.held.session.streams_open == 0)

    asyncio.run(story())


def test_a_leaving_owner_takes_no_new_relay_and_finishes_running_ones() -> None:
    async def story() -> None:
        async with town("a") as (_, houses), tunnel(houses["a"], epoch=7), peer_of(houses["a"]) as peer:
            running = await ask(peer)
            houses["a"].server.go_away("stopping")
            await until(lambda: not peer.connected)
            with pytest.raises(SessionDead):
                peer.open_stream()
            assert await exchanged(running) == b"ping"
            running.abort()
            assert await houses["a"].server.close(soon())

    asyncio.run(story())
