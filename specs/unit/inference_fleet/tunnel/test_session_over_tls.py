"""The stories of a session, a splice and a stream in which TLS could make a difference, over the direct carrier on TLS."""

from __future__ import annotations

import asyncio
import hashlib
from typing import TYPE_CHECKING

import pytest

from inference_fleet.tunnel import DirectWebSocket
from inference_fleet.tunnel.echo import echo_stream as echo

from .linked import TIMINGS, Collector, Secured, linked, offering, within
from .test_session import (
    test_a_half_open_link_is_noticed_by_both_sides_and_closes_the_transport,
    test_a_reader_that_stops_parks_its_own_stream_and_no_other,
    test_a_reset_ends_one_stream_on_both_sides_and_nothing_else,
    test_after_go_away_running_streams_finish_and_the_session_reads_disconnected_meanwhile,
    test_bytes_pass_both_ways_over_a_real_websocket_and_half_close_is_kept,
    test_cancelling_run_aborts_the_carrier_and_kills_the_streams,
    test_no_task_outlives_run,
    test_the_abrupt_death_of_the_connection_is_session_death_for_every_stream,
)
from .test_splice import (
    test_a_half_close_passes_through_and_the_other_direction_still_answers,
    test_a_peer_that_stops_reading_mid_body_and_then_hangs_up_ends_the_splice,
    test_a_relay_keeps_half_close_and_reports_the_death_of_the_far_session_as_session_death,
    test_an_answer_given_while_the_request_still_comes_arrives_before_the_reset,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from inference_fleet.tunnel import Session

__all__ = [
    "test_a_half_close_passes_through_and_the_other_direction_still_answers",
    "test_a_half_open_link_is_noticed_by_both_sides_and_closes_the_transport",
    "test_a_peer_that_stops_reading_mid_body_and_then_hangs_up_ends_the_splice",
    "test_a_reader_that_stops_parks_its_own_stream_and_no_other",
    "test_a_relay_keeps_half_close_and_reports_the_death_of_the_far_session_as_session_death",
    "test_a_reset_ends_one_stream_on_both_sides_and_nothing_else",
    "test_after_go_away_running_streams_finish_and_the_session_reads_disconnected_meanwhile",
    "test_an_answer_given_while_the_request_still_comes_arrives_before_the_reset",
    "test_bytes_pass_both_ways_over_a_real_websocket_and_half_close_is_kept",
    "test_cancelling_run_aborts_the_carrier_and_kills_the_streams",
    "test_no_task_outlives_run",
    "test_the_abrupt_death_of_the_connection_is_session_death_for_every_stream",
]

pytestmark = pytest.mark.needs("openssl")

BULK = 8 * 1024 * 1024
PIECE = 256 * 1024


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Secured:
    return Secured.made(tmp_path_factory.mktemp("tls"))


@pytest.fixture(autouse=True)
def _tls(secured: Secured) -> Iterator[None]:
    with offering(secured=secured):
        yield


def test_bulk_passes_both_ways_at_once_and_is_what_was_sent() -> None:
    async def story() -> None:
        async with linked(on_client_stream=echo, on_server_stream=echo) as link:
            assert isinstance(link.server_carrier, DirectWebSocket)
            assert isinstance(link.client_carrier, DirectWebSocket)
            async with asyncio.TaskGroup() as group:
                group.create_task(sent_and_come_back(link.server, b"down"))
                group.create_task(sent_and_come_back(link.client, b"up"))

    asyncio.run(story())


async def sent_and_come_back(session: Session, seed: bytes) -> None:
    """Send as much as is bulk, different in every piece, and compare what the other end's echo makes of it."""
    stream, seen = session.open_stream(), Collector()
    stream.set_protocol(seen)
    expected = hashlib.sha256()
    for number in range(BULK // PIECE):
        piece = hashlib.shake_128(seed + number.to_bytes(4, "big")).digest(PIECE)
        expected.update(piece)
        await within(seen.writable.wait())
        stream.write(piece)
    stream.write_eof()
    await within(seen.eof)
    assert hashlib.sha256(seen.data).digest() == expected.digest()


def test_both_ends_of_a_session_close_in_order_and_at_once() -> None:
    """Each says goodbye three times over: the session, its WebSocket, and TLS."""

    async def story() -> None:
        async with linked() as link:
            loop = asyncio.get_running_loop()
            begun = loop.time()
            await within(link.client.close())
            assert (await link.client_run).clean
            assert (await link.server_run).cause == "the peer closed the connection"
            assert loop.time() - begun < TIMINGS.keepalive_timeout_s

    asyncio.run(story())
