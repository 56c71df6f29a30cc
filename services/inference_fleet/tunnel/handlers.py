"""Who serves the streams the peer opened: tasks of the session's group, and the splices they leave behind."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from inference_fleet.tunnel.errors import SessionDead, StreamReset
from inference_fleet.tunnel.notices import ResetCause

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from inference_fleet.tunnel.splice import Joint, Spliced
    from inference_fleet.tunnel.stream import Stream

    OnStream = Callable[[Stream], Awaitable[Joint | None]]

_log = logging.getLogger(__name__)


class Handlers:
    """One task a stream until its handler returns; a handler's bug ends its stream, never the session.

    A handler may hand its stream to a `Joint` and return that: the stream then lives without a task, for as long as
    its session.
    """

    def __init__(self, on_stream: OnStream | None, *, name: str) -> None:
        """`name` is the session's, for the log."""
        self._on_stream = on_stream
        self._name = name
        self._joints: set[Joint] = set()
        self._quiet: asyncio.Future[None] | None = None
        self.tasks: set[asyncio.Task[None]] = set()

    def serve(self, stream: Stream, group: asyncio.TaskGroup) -> None:
        """Give the stream to the handler, in a task of the group."""
        task = group.create_task(self._serve(stream))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def settle(self, linger_s: float) -> None:
        """Let what runs pass on what came in for so long (0: not at all), then cut it."""
        loop = asyncio.get_running_loop()
        until = loop.time() + linger_s
        if self.tasks and linger_s:
            await asyncio.wait(self.tasks, timeout=linger_s)
        if self._joints and linger_s:
            self._quiet = loop.create_future()
            await asyncio.wait([self._quiet], timeout=max(0.0, until - loop.time()))
        for task in self.tasks:
            task.cancel()
        self.cut()

    def cut(self) -> None:
        """End every splice that is left: one whose stream is over may still hold what its service does not take."""
        for joint in list(self._joints):
            joint.cut()

    async def _serve(self, stream: Stream) -> None:
        assert self._on_stream is not None, "a side that serves nothing accepts nothing"
        joint: Joint | None = None
        try:
            joint = await self._on_stream(stream)
        except (SessionDead, StreamReset) as error:
            _log.debug("tunnel %s: stream %d: %s", self._name, stream.id, error)
        except Exception:  # noqa: BLE001  # logged; the peer sees its stream reset
            _log.exception(
                "tunnel %s: stream %d: its handler failed; the stream is reset", self._name, stream.id
            )
            if not stream.is_closing():
                stream.reset(ResetCause.FAILED)
        finally:
            if joint is None and not stream.is_closing():
                stream.abort()
        if joint is not None and not joint.over:
            joint.then = self._joint_over
            self._joints.add(joint)

    def _joint_over(self, joint: Joint, spliced: Spliced) -> None:
        self._joints.discard(joint)
        if spliced.error is not None:
            _log.debug("tunnel %s: cut on the %s side: %s", self._name, spliced.failed, spliced.error)
        if not self._joints and self._quiet is not None and not self._quiet.done():
            self._quiet.set_result(None)
