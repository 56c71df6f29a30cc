"""How long a closed stream waits for its peer: while that takes what was written, and then for its end of file.

| state                                    | ends when                                                                  |
|------------------------------------------|----------------------------------------------------------------------------|
| bytes wait in front of the FIN           | for `splice_stall_s` the peer took none of them and gave no credit: `stalled` |
| the FIN is out, the peer's has not come  | `stream_linger_s` is over: `linger`                                        |

Bytes that have credit wait for the carrier, which has a time of its own.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from inference_fleet.tunnel.notices import ResetCause

if TYPE_CHECKING:
    from inference_fleet.tunnel.stream import Stream
    from inference_fleet.tunnel.stream_host import StreamHost

_LATE_SHARE: Final = 0.1


class Farewell:
    """What follows the close of one stream."""

    __slots__ = ("_host", "_stream", "_timer", "_unsent")

    def __init__(self, stream: Stream, host: StreamHost) -> None:
        """Of a stream that has just been closed."""
        self._stream = stream
        self._host = host
        self._unsent = stream.get_write_buffer_size()
        self._timer: asyncio.TimerHandle | None = None

    def unsent(self) -> None:
        """Bytes wait in front of the FIN."""
        self._unsent = self._stream.get_write_buffer_size()
        self._timer = self._loop.call_later(self._host.timings.splice_stall_s, self._judge)

    def said(self) -> None:
        """The FIN is out: the peer's is due."""
        self.stop()
        self._timer = self._loop.call_later(
            self._host.timings.stream_linger_s, self._stream.reset, ResetCause.LINGER
        )

    def stop(self) -> None:
        """The stream is over."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _judge(self) -> None:
        """A loop that was stalled itself judges nobody by that time."""
        assert self._timer is not None, "the timer calls"
        late_s = self._loop.time() - self._timer.when()
        moved = self._stream.get_write_buffer_size() < self._unsent
        if (
            moved
            or self._host.stream_credit(self._stream)
            or late_s > _LATE_SHARE * self._host.timings.splice_stall_s
        ):
            self.unsent()
        else:
            self._stream.reset(ResetCause.STALLED)

    @property
    def _loop(self) -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()
