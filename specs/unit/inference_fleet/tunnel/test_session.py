from __future__ import annotations

import asyncio
import hashlib

from inference_fleet.tunnel.echo import echo_stream as echo

from .linked import Collector, linked, within


def test_bytes_pass_both_ways_over_a_real_websocket_and_half_close_is_kept() -> None:
    async def story() -> None:
        payload = bytes(range(256)) * 8192
        async with linked(on_client_stream=echo) as link:
            stream = link.server.open_stream()
            seen = Collector()
            stream.set_protocol(seen)
            stream.write(payload)
            stream.write_eof()
            await within(seen.eof)
            await within(seen.lost)
            assert hashlib.sha256(seen.data).digest() == hashlib.sha256(payload).digest()
            assert seen.lost.result() is None
            assert link.server.streams_open == 0

    asyncio.run(story())
