"""The tasks that serve streams the peer opened: started in the session's group, each ends its own stream."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from inference_fleet.tunnel.errors import SessionDead, StreamReset
from inference_fleet.tunnel.notices import ResetCause

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from inference_fleet.tunnel.stream import Stream

_log = logging.getLogger(__name__)


class Handlers:
    """One task a stream; a handler's bug ends its stream, never the session."""

    def __init__(self, on_stream: Callable[[Stream], Awaitable[None]] | None, *, name: str) -> None:
        """`name` is the session's, for the log."""
        self._on_stream = on_stream
        self._name = name
        self.tasks: set[asyncio.Task[None]] = set()

    def serve(self, stream: Stream, group: asyncio.TaskGroup) -> None:
        """Give the stream to the handler, in a task of the group."""
        task = group.create_task(self._serve(stream))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def settle(self, linger_s: float) -> None:
        """Let handlers pass on what came in for so long (0: not at all), then cut them."""
        if self.tasks and linger_s:
            await asyncio.wait(self.tasks, timeout=linger_s)
        for task in self.tasks:
            task.cancel()

    async def _serve(self, stream: Stream) -> None:
        assert self._on_stream is not None, "a side that serves nothing accepts nothing"
        try:
            await self._on_stream(stream)
        except (SessionDead, StreamReset) as error:
            _log.debug("tunnel %s: stream %d: %s", self._name, stream.id, error)
        except Exception:  # noqa: BLE001  # logged; the peer sees its stream reset
            _log.exception(
                "tunnel %s: stream %d: its handler failed; the stream is reset", self._name, stream.id
            )
            if not stream.is_closing():
                stream.reset(ResetCause.FAILED)
        finally:
            if not stream.is_closing():
                stream.abort()
