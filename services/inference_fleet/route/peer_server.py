"""The owner's end of a peer link: opens the worker's stream a peer asks for, answers once, then passes bytes.

| what the peer asks                               | answer                                                           |
|--------------------------------------------------|------------------------------------------------------------------|
| a worker this replica does not hold              | `not-owner`                                                      |
| a worker it holds at another epoch               | `stale-epoch`                                                    |
| a frame that is late, broken or a second hop     | `not-served`: nothing was learned, least of all about the worker |
| a stream the worker refuses                      | the worker's own code and words                                  |
| a stream the tunnel fails to open in time        | `not-served`                                                     |
"""

from __future__ import annotations

import functools
import logging
import time
from typing import TYPE_CHECKING

from inference_fleet.route.relay_frame import FRAME_LIMIT, RelayInvalid, RelayRequest
from inference_fleet.settings import Deadline
from inference_fleet.telemetry.logs import bound
from inference_fleet.telemetry.trace import trace_ids
from inference_fleet.tunnel import (
    FrameMalformed,
    Joint,
    Refusal,
    Session,
    StreamRefused,
    accept_stream,
    counted,
    part,
    read_frame,
    refusal_label,
    refuse_stream,
    refuse_stream_as,
    request_stream,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from inference_fleet.route.table import SessionTable
    from inference_fleet.settings import Timings
    from inference_fleet.telemetry.metrics import Metrics
    from inference_fleet.tunnel import Carrier, DirectCarrier, Ending, Stream, StreamRequest

_log = logging.getLogger(__name__)


class PeerServer:
    """Serves relays out of this replica's own session table, and nowhere else: a relay is never passed on."""

    def __init__(
        self,
        *,
        table: SessionTable,
        timings: Timings,
        metrics: Metrics,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`clock` (seconds) measures how long a peer's frame took to come in, which its budget pays for."""
        self._clock = clock
        self._table = table
        self._timings = timings
        self._metrics = metrics
        self._sessions: set[Session] = set()

    async def serve(self, carrier: Carrier | DirectCarrier, *, peer: str) -> Ending:
        """Drive one accepted link, whose token said it is `peer`, to its end."""
        session = Session(
            carrier,
            client=False,
            timings=self._timings,
            on_stream=functools.partial(self._relay, peer),
            name=f"from peer {peer}",
            notices=counted(self._metrics),
        )
        self._sessions.add(session)
        try:
            return await session.run()
        finally:
            self._sessions.discard(session)

    @property
    def sessions(self) -> list[Session]:
        """Every live link from a peer."""
        return list(self._sessions)

    def go_away(self, reason: str) -> None:
        """Tell every peer to ask nothing new here; running relays finish."""
        for session in self.sessions:
            session.go_away(reason)

    async def close(self, deadline: Deadline) -> bool:
        """Wait for running relays, then close the links; True when all finished in time."""
        return await part(self.sessions, deadline)

    async def _relay(self, peer: str, stream: Stream) -> Joint | None:
        begun = self._clock()
        try:
            relay = RelayRequest.decode(await self._frame(stream), peer=peer)
        except (FrameMalformed, RelayInvalid) as error:
            self._refuse(stream, Refusal.NOT_SERVED, f"peer {peer}: {error}")
            return None
        asked = relay.request
        with bound(node=asked.node, epoch=asked.epoch, **trace_ids(asked.traceparent)):
            return await self._open(stream, relay.aged(self._clock() - begun).request)

    async def _frame(self, stream: Stream) -> bytes:
        within_s = self._timings.relay_frame_s
        try:
            return await read_frame(stream, limit=FRAME_LIMIT, deadline=Deadline.after(within_s))
        except TimeoutError as error:
            raise RelayInvalid(
                f"no whole relay frame: {error}; try: all of it within {within_s:g} s"
            ) from None

    async def _open(self, stream: Stream, request: StreamRequest) -> Joint | None:
        held = self._table.get(request.node)
        if held is None:
            self._refuse(
                stream, Refusal.NOT_OWNER, f"this replica does not hold the tunnel of node {request.node}"
            )
            return None
        if held.epoch != request.epoch:
            self._refuse(
                stream, Refusal.STALE_EPOCH, f"the tunnel is held at epoch {held.epoch}, not {request.epoch}"
            )
            return None
        deadline = Deadline.from_budget_ms(request.budget_ms, longest_s=self._timings.stream_open_s)
        try:
            worker = await request_stream(held.session, request, deadline=deadline)
        except StreamRefused as refused:
            self._metrics.refusals.labels(refusal_label(refused.code)).inc()
            refuse_stream_as(stream, refused.code, refused.message)
            return None
        except (OSError, TimeoutError) as error:
            self._refuse(stream, Refusal.NOT_SERVED, f"the worker's tunnel gave no stream: {error}")
            return None
        accept_stream(stream)
        count = self._metrics.relayed_bytes.inc
        return Joint(stream, worker, stall_s=self._timings.splice_stall_s, count=count)

    def _refuse(self, stream: Stream, refusal: Refusal, message: str) -> None:
        _log.info("refused a relay: %s: %s", refusal.value, message)
        if not stream.is_closing():  # a peer that gave up is sent nothing
            self._metrics.refusals.labels(refusal_label(refusal.value)).inc()
        refuse_stream(stream, refusal, message)
