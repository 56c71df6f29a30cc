from __future__ import annotations

import asyncio

from inference_fleet.tunnel import Joint, Stream
from inference_fleet.tunnel.echo import echo_stream
from inference_fleet.tunnel.handlers import Handlers

from .linked import TIMINGS, until
from .piped import piped


class _Side(asyncio.Transport):
    """A transport that is told by hand how its peer does."""

    def __init__(self) -> None:
        super().__init__()
        self.aborted = False
        self.protocol: asyncio.Protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        assert isinstance(protocol, asyncio.Protocol)
        self.protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        return asyncio.Protocol()

    def resume_reading(self) -> None: ...

    def can_write_eof(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 0

    def close(self) -> None: ...

    def abort(self) -> None:
        self.aborted = True


async def _joined() -> tuple[Handlers, Joint, _Side, _Side]:
    """Handlers whose one stream was handed to a joint of two sides."""
    left, right = _Side(), _Side()
    joint = Joint(left, right, stall_s=TIMINGS.splice_stall_s)

    async def hand_over(stream: Stream) -> Joint:
        del stream
        return joint

    handlers = Handlers(hand_over, name="spec")
    async with piped(on_server_stream=echo_stream) as both, asyncio.TaskGroup() as group:
        handlers.serve(both.client.open_stream(), group)
        await until(lambda: not handlers.tasks)
        assert not joint.over
    return handlers, joint, left, right


def test_what_a_splice_has_still_to_pass_on_is_waited_for_at_an_orderly_end() -> None:
    async def story() -> None:
        handlers, joint, left, right = await _joined()
        settling = asyncio.create_task(handlers.settle(TIMINGS.stream_linger_s))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not joint.over, "a splice was cut at an orderly end"
        for side in (left, right):
            side.protocol.eof_received()
        for side in (left, right):
            side.protocol.connection_lost(None)
        await settling
        assert [left.aborted, right.aborted] == [False, False]

    asyncio.run(story())


def test_a_splice_that_does_not_end_is_cut_when_the_time_is_over_or_there_is_none() -> None:
    async def story(linger_s: float) -> None:
        handlers, joint, left, right = await _joined()
        await handlers.settle(linger_s)
        assert joint.over, "a splice outlives the settling of its session"
        assert [left.aborted, right.aborted] == [True, True]

    asyncio.run(story(0))
    asyncio.run(story(TIMINGS.stream_linger_s / 50))
