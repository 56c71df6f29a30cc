"""The one way to a worker: where it leads, what each failure is called, and whom it never blames."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING

import aiohttp
import pytest

from inference_fleet.route import (
    CallerExpired,
    NoRelayPath,
    NoRoute,
    NothingLearned,
    NotOwner,
    OwnerUnknown,
    PeerUnreachable,
    RouteError,
    StreamParts,
    TunnelFailed,
    WorkerRefused,
)
from inference_fleet.route.dialer import classify
from inference_fleet.route.outcomes import InstanceNotFound, NoConnection, carries_absence
from inference_fleet.settings import Deadline
from inference_fleet.store import DatabaseUnavailable
from inference_fleet.tunnel import Refusal, SessionDead, StreamRequest, refuse_stream, refuse_stream_as
from inference_fleet.tunnel.http import stream_client

from .piped import TIMINGS, until
from .routed import exchanged, owned_by, town, tunnel

if TYPE_CHECKING:
    from inference_fleet.tunnel import Stream

PARTS = StreamParts(tag="backend", target="127.0.0.1:20051", process_key="m#1", traceparent="00-a-b-01")


def soon() -> Deadline:
    return Deadline.after(TIMINGS.request_s)


@pytest.mark.holds("B-49", "B-50", "B-53")
def test_a_stream_comes_back_past_its_handshake_from_wherever_the_tunnel_is_held() -> None:
    async def story() -> None:
        async with town("a", "b") as (owners, houses), tunnel(houses["a"], epoch=7) as held:
            owners.says["n"] = owned_by("a", epoch=7)

            local = await houses["a"].dialer.open("n", PARTS, deadline=soon())
            relayed = await houses["b"].dialer.open("n", PARTS, deadline=soon())

            assert (local.route, relayed.route) == ("local", "relayed")
            assert (local.epoch, relayed.epoch) == (7, 7)
            assert await exchanged(local.stream) == await exchanged(relayed.stream) == b"ping"
            assert owners.asked == 1, "a session held here needs no look into the database"
            for request in held.requests:  # the address is a name for one process and arrives as it was given
                assert (request.tag, request.target, request.process_key) == ("backend", PARTS.target, "m#1")
                assert (request.node, request.epoch, request.traceparent) == ("n", 7, PARTS.traceparent)
                assert request.budget_ms is not None, "the worker was not told how long the caller waits"
                assert 0 < request.budget_ms <= TIMINGS.request_s * 1000
            for opened in (local, relayed):
                opened.stream.abort()

    asyncio.run(story())


@pytest.mark.holds("B-65", "B-64")
def test_a_deadline_that_has_passed_blames_nobody_even_where_nobody_listens() -> None:
    async def story() -> None:
        async with town("b") as (owners, houses):
            owners.says["n"] = owned_by("nobody", address="127.0.0.1:1")
            with pytest.raises(RouteError) as caught:
                await houses["b"].dialer.open("n", PARTS, deadline=Deadline(at=0.0))
            assert isinstance(caught.value, CallerExpired), (
                "somebody was blamed for the caller's own deadline"
            )
            assert (owners.asked, houses["b"].dials) == (0, 0), "nobody is asked for a caller that is gone"
            with pytest.raises(
                PeerUnreachable
            ):  # the control: with time left, the same address is the peer's failure
                await houses["b"].dialer.open("n", PARTS, deadline=soon())
            assert houses["b"].outcome("caller-expired") == houses["b"].outcome("peer-unreachable") == 1

    asyncio.run(story())


@pytest.mark.holds("B-64")
@pytest.mark.parametrize(
    "error",
    [
        PeerUnreachable("n", "silent"),
        NotOwner("n", "not here"),
        SessionDead("the link broke"),
        TimeoutError(),
        WorkerRefused("n", 1, "unavailable", "nothing listens"),
        DatabaseUnavailable("out"),
        NoConnection("nobody"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_at_the_ambiguous_instant_the_callers_time_is_what_ran_out(error: Exception) -> None:
    assert isinstance(classify("n", error, Deadline(at=0.0)), CallerExpired), "the caller is looked at first"
    assert not isinstance(classify("n", error, soon()), CallerExpired)


@pytest.mark.holds("B-54", "B-55", "B-63")
def test_each_condition_has_its_own_name_and_no_absence_travels() -> None:
    async def story() -> None:
        async with town("a", "b") as (owners, houses):
            says = {
                "unheld": (None, NoRoute, "no-connection"),
                "undialable": (owned_by("a", address=""), NoRelayPath, "no-relay-path"),
                "elsewhere": (owned_by("c"), PeerUnreachable, "peer-unreachable"),
                "stale": (owned_by("a"), NotOwner, "stale-owner"),
                "stale-here": (owned_by("b"), NotOwner, "stale-owner"),
                "unknown": (DatabaseUnavailable("out"), OwnerUnknown, "owner-unknown"),
            }
            for node, (said, kind, outcome) in says.items():
                owners.says[node] = said
                before = houses["b"].outcome(outcome)
                with pytest.raises(NoRoute) as caught:
                    await houses["b"].dialer.open(node, PARTS, deadline=soon())
                assert type(caught.value) is kind, f"{node}: {caught.value!r}"
                assert f"no route to node {node}" in str(caught.value)
                assert not carries_absence(caught.value), (
                    f"{node}: an absence claim can be found in the chain"
                )
                assert houses["b"].outcome(outcome) == before + 1

    asyncio.run(story())


@pytest.mark.holds("B-63")
def test_a_relay_to_a_node_no_replica_holds_is_not_owner_and_never_no_connection() -> None:
    async def story() -> None:
        async with town("a", "b") as (owners, houses):
            owners.says["n"] = owned_by("a")
            with pytest.raises(NotOwner) as caught:
                await houses["b"].dialer.open("n", PARTS, deadline=soon())
            assert not isinstance(caught.value, NoConnection | InstanceNotFound)
            assert owners.asked == 2, "a stale owner is asked about exactly once more"

    asyncio.run(story())


def test_a_stale_owner_is_resolved_once_more_and_the_newer_one_serves() -> None:
    async def story() -> None:
        async with town("a", "b", "c") as (owners, houses), tunnel(houses["c"], epoch=2):
            owners.says["n"] = [owned_by("a", epoch=1), owned_by("c", epoch=2)]
            opened = await houses["b"].dialer.open("n", PARTS, deadline=soon())
            assert (opened.route, opened.epoch) == ("relayed", 2)
            opened.stream.abort()

    asyncio.run(story())


def test_a_session_held_here_at_an_old_epoch_gives_way_to_the_newer_owner() -> None:
    async def refuse_stale(stream: Stream, _request: StreamRequest) -> None:
        refuse_stream(stream, Refusal.STALE_EPOCH, "seen a higher one")

    async def story() -> None:
        async with (
            town("a", "b") as (owners, houses),
            tunnel(houses["b"], epoch=1, serve=refuse_stale),
            tunnel(houses["a"], epoch=2),
        ):
            owners.says["n"] = owned_by("a", epoch=2)
            opened = await houses["b"].dialer.open("n", PARTS, deadline=soon())
            assert (opened.route, opened.epoch) == ("relayed", 2)
            opened.stream.abort()

    asyncio.run(story())


def test_an_own_row_at_a_higher_epoch_than_the_session_is_not_owner_and_asks_no_worker_again() -> None:
    async def refuse_stale(stream: Stream, _request: StreamRequest) -> None:
        refuse_stream(stream, Refusal.STALE_EPOCH, "seen a higher one")

    async def story() -> None:
        async with (
            town("b") as (owners, houses),
            tunnel(houses["b"], epoch=1, serve=refuse_stale) as held,
        ):
            owners.says["n"] = owned_by("b", epoch=2)
            with pytest.raises(NotOwner) as caught:
                await houses["b"].dialer.open("n", PARTS, deadline=soon())
            assert len(held.requests) == 1, "the worker was asked over a session that is not the row's"
            assert "at epoch 2 and holds epoch 1" in str(caught.value)

    asyncio.run(story())


@pytest.mark.holds("B-61", "B-54")
@pytest.mark.parametrize("asked", ["a", "b"], ids=["local", "relayed"])
def test_a_workers_refusal_stays_its_own_answer(asked: str) -> None:
    async def story(code: str) -> Exception:
        async def refuse(stream: Stream, _request: StreamRequest) -> None:
            refuse_stream_as(stream, code, "as it was said")

        async with town("a", "b") as (owners, houses), tunnel(houses["a"], epoch=3, serve=refuse):
            owners.says["n"] = owned_by("a", epoch=3)
            with pytest.raises((WorkerRefused, NoRoute)) as caught:
                await houses[asked].dialer.open("n", PARTS, deadline=soon())
            return caught.value

    for code, evidence in (
        ("unavailable", True),
        ("tag-unknown", True),
        ("invalid", True),
        ("not-served", False),
    ):
        refused = asyncio.run(story(code))
        assert isinstance(refused, WorkerRefused), code
        assert (refused.code, refused.evidence, refused.epoch) == (code, evidence, 3)
        assert not isinstance(refused, NoRoute)
        assert refused.message == "as it was said"
    unknown = asyncio.run(story("from-the-future"))
    assert isinstance(unknown, NothingLearned), "a code nobody here knows is no answer"
    assert "from-the-future" in str(unknown)


@pytest.mark.parametrize(
    ("epoch", "says", "counted"),
    [
        (None, "", {"not-owner": 2}),  # each is asked twice
        (6, "", {"stale-epoch": 2}),
        (7, "unavailable", {"unavailable": 1}),
        (7, "not-served", {"not-served": 1}),
        (7, "from-the-future", {"unknown": 1}),
    ],
)
def test_a_refusal_is_counted_once_at_the_owner_and_once_at_the_asker(
    epoch: int | None, says: str, counted: dict[str, float]
) -> None:
    async def refuse(stream: Stream, _request: StreamRequest) -> None:
        refuse_stream_as(stream, says, "as it was said")

    async def story() -> None:
        async with town("a", "b") as (owners, houses), contextlib.AsyncExitStack() as stack:
            owners.says["n"] = owned_by("a", epoch=7)
            if epoch is not None:
                await stack.enter_async_context(tunnel(houses["a"], epoch=epoch, serve=refuse))
            with pytest.raises((NoRoute, WorkerRefused)):
                await houses["b"].dialer.open("n", PARTS, deadline=soon())
            assert houses["b"].refusals() == counted, "what the asker heard"
            assert houses["a"].refusals() == counted, "what the owner heard or sent"

    asyncio.run(story())


def test_a_refusal_heard_from_a_worker_whose_tunnel_is_here_is_counted_once() -> None:
    async def refuse(stream: Stream, _request: StreamRequest) -> None:
        refuse_stream(stream, Refusal.UNAVAILABLE, "nothing listens")

    async def story() -> None:
        async with town("a") as (_, houses), tunnel(houses["a"], serve=refuse):
            with pytest.raises(WorkerRefused):
                await houses["a"].dialer.open("n", PARTS, deadline=soon())
            assert houses["a"].refusals() == {"unavailable": 1}

    asyncio.run(story())


@pytest.mark.parametrize("asked", ["a", "b"], ids=["local", "relayed"])
def test_a_tunnel_that_stays_silent_is_the_tunnels_failure_within_its_own_limit(asked: str) -> None:
    async def silent(stream: Stream, _request: StreamRequest) -> None:
        await stream.read_exactly(1, deadline=soon())

    quick = replace(TIMINGS, stream_open_s=TIMINGS.reconnect_backoff_min_s)

    async def story() -> None:
        async with (
            town("a", "b", timings=quick) as (owners, houses),
            tunnel(houses["a"], serve=silent) as held,
        ):
            owners.says["n"] = owned_by("a")
            with pytest.raises((NoRoute, WorkerRefused)) as caught:
                await houses[asked].dialer.open("n", PARTS, deadline=soon())
            assert isinstance(caught.value, TunnelFailed | PeerUnreachable | WorkerRefused)
            assert getattr(caught.value, "evidence", False) is False
            assert len(held.requests) == 1, "silence is not asked again"

    asyncio.run(story())


def test_a_tunnel_that_dies_under_the_question_is_asked_about_once_more() -> None:
    async def story() -> None:
        async with town("a", "b") as (owners, houses):

            async def die(stream: Stream, _request: StreamRequest) -> None:
                stream.get_extra_info("session")._carrier.abort()

            async with tunnel(houses["b"], epoch=1, serve=die), tunnel(houses["a"], epoch=2):
                owners.says["n"] = owned_by("a", epoch=2)
                opened = await houses["b"].dialer.open("n", PARTS, deadline=soon())
                assert opened.route == "relayed"
                opened.stream.abort()

    asyncio.run(story())


@pytest.mark.holds("B-56")
def test_an_outcome_crosses_an_http_client_as_a_value_that_still_matches() -> None:
    async def story() -> None:
        async with town("b") as (owners, houses):
            owners.says["n"] = owned_by("gone")

            async def open_stream() -> Stream:
                return (await houses["b"].dialer.open("n", PARTS, deadline=soon())).stream

            async with stream_client(open_stream) as client:
                with pytest.raises((NoRoute, aiohttp.ClientError)) as caught:
                    await client.get("http://worker/health")
            error: BaseException | None = caught.value
            while error is not None and not isinstance(error, NoRoute):
                error = error.__cause__
            assert isinstance(error, PeerUnreachable), "the value arrives, matching umbrella and kind"
            assert not carries_absence(caught.value)

    asyncio.run(story())


def test_a_caller_that_gives_up_leaves_no_stream_behind() -> None:
    async def silent(stream: Stream, _request: StreamRequest) -> None:
        await stream.read_exactly(1, deadline=soon())

    async def story() -> None:
        async with town("a") as (_, houses), tunnel(houses["a"], serve=silent) as held:
            asking = asyncio.create_task(houses["a"].dialer.open("n", PARTS, deadline=soon()))
            await until(lambda: held.requests)
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
            assert held.held.session.streams_open == 0

    asyncio.run(story())
