"""The worker's side of a stream: read the request, check it, connect the loopback, answer, splice.

Only the worker's own answer about its target is evidence. Whatever this side did not learn, because time ran
out, because it was cancelled or because it ran short itself, is `not-served`.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from inference_fleet.settings import Deadline
from inference_fleet.settings.loopback import LOOPBACK
from inference_fleet.telemetry.logs import bound
from inference_fleet.telemetry.trace import trace_ids
from inference_fleet.tunnel.errors import DeadlineExpired, SessionDead, StreamReset
from inference_fleet.tunnel.frames import FrameMalformed, read_frame
from inference_fleet.tunnel.handshake import (
    TAG_BACKEND,
    TAG_HTTP,
    VERSION,
    StreamRequest,
    accept_stream,
    refuse_stream,
    refuse_stream_as,
)
from inference_fleet.tunnel.loopback import connect_loopback
from inference_fleet.tunnel.refusals import Refusal, StreamRefused
from inference_fleet.tunnel.splice import Joint

if TYPE_CHECKING:
    import asyncio

    from inference_fleet.settings import Timings
    from inference_fleet.tunnel.stream import Stream

Target: TypeAlias = tuple[str, int]
Resolve: TypeAlias = Callable[[str, str, str | None], Target | Refusal]
Heard: TypeAlias = Callable[[Target], None]

_log = logging.getLogger(__name__)
_OWN_WANT: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL})


@dataclass(kw_only=True)
class SeenEpoch:
    """The highest epoch the worker was given in a 101; shared by the dial and every stream's check."""

    value: int = 0

    def learn(self, epoch: int) -> None:
        """Only dials teach: a request could name any number."""
        self.value = max(self.value, epoch)


def serve_streams(
    *, node: str, seen: SeenEpoch, resolve: Resolve, timings: Timings, heard: Heard | None = None
) -> Callable[[Stream], Awaitable[Joint | None]]:
    """A session's `on_stream` for one worker.

    `resolve(tag, target, process_key)` gives the loopback `(host, port)` or the refusal to answer with; `heard` is
    told whenever a target says something on a stream.
    """

    async def serve(stream: Stream) -> Joint | None:
        return await serve_stream(stream, node=node, seen=seen, resolve=resolve, timings=timings, heard=heard)

    return serve


async def serve_stream(
    stream: Stream,
    *,
    node: str,
    seen: SeenEpoch,
    resolve: Resolve,
    timings: Timings,
    heard: Heard | None = None,
) -> Joint | None:
    """Serve one stream until it is joined to its target; every failure before that is answered with its refusal."""
    with contextlib.ExitStack() as speaking:
        try:
            request = await _read_request(stream, timings)
            speaking.enter_context(bound(node=node, epoch=request.epoch, **trace_ids(request.traceparent)))
            target = _check(request, node=node, seen=seen, resolve=resolve)
            service = await _connect(target, request, timings)
        except StreamRefused as refused:
            _log.info("refused a stream: %s: %s", refused.code, refused.message)
            refuse_stream_as(stream, refused.code, refused.message)
            return None
        except (SessionDead, StreamReset):
            raise
        except BaseException as error:
            refuse_stream(stream, Refusal.NOT_SERVED, f"the worker failed before it could look: {error!r}")
            raise
    accept_stream(stream)
    said = None if heard is None else functools.partial(heard, target)
    return Joint(stream, service, stall_s=timings.splice_stall_s, heard=said)


async def _read_request(stream: Stream, timings: Timings) -> StreamRequest:
    try:
        return StreamRequest.decode(
            await read_frame(stream, deadline=Deadline.after(timings.stream_header_s))
        )
    except FrameMalformed as error:
        raise _refused(Refusal.INVALID, str(error)) from None
    except DeadlineExpired as error:
        text = f"no whole request: {error}; try: all of it within {timings.stream_header_s:g} s"
        raise _refused(Refusal.NOT_SERVED, text) from None


def _check(request: StreamRequest, *, node: str, seen: SeenEpoch, resolve: Resolve) -> Target:
    if request.v != VERSION:
        raise _refused(
            Refusal.NOT_SERVED, f"request version {request.v} is not spoken here; try: version {VERSION}"
        )
    if request.node != node:
        raise _refused(Refusal.NOT_SERVED, f"this is not node {request.node}; try: {node}, which it is")
    if request.epoch < seen.value:
        text = f"epoch {request.epoch} is below {seen.value}, seen here; try: the worker's owner of now"
        raise _refused(Refusal.STALE_EPOCH, text)
    if request.tag not in {TAG_HTTP, TAG_BACKEND}:
        text = f"tag {_cut(request.tag)} is not known here; try: {TAG_HTTP} or {TAG_BACKEND}"
        raise _refused(Refusal.TAG_UNKNOWN, text)
    if request.tag == TAG_BACKEND:
        backend_port(request.target)
        if not request.process_key:
            raise _refused(
                Refusal.INVALID, "a backend request without a process_key; try: the one the worker reported"
            )
    elif request.target:
        text = f"target {_cut(request.target)} with tag {TAG_HTTP}, which takes none; try: no target"
        raise _refused(Refusal.INVALID, text)
    answer = resolve(request.tag, request.target, request.process_key)
    if isinstance(answer, Refusal):
        raise _refused(answer, f"no {request.tag} {request.target} {request.process_key or ''} here".strip())
    return answer


def backend_port(target: str) -> int:
    """The port in `127.0.0.1:PORT`; `StreamRefused` as `invalid` for any other form."""
    host, _, port = target.partition(":")
    if host == LOOPBACK and port.isascii() and port.isdigit() and len(port) <= 5 and 0 < int(port) <= 65535:
        return int(port)
    raise _refused(
        Refusal.INVALID, f"target {_cut(target)} names no process here; try: {LOOPBACK}:PORT of one"
    )


async def _connect(target: Target, request: StreamRequest, timings: Timings) -> asyncio.Transport:
    host, port = target
    deadline = Deadline.from_budget_ms(request.budget_ms, longest_s=timings.backend_connect_s)
    try:
        return await connect_loopback(host, port, within_s=deadline.remaining_s)
    except OSError as error:
        raise _refused(
            classify(error), f"{request.tag} {host}:{port}: {str(error) or type(error).__name__}"
        ) from None


def classify(error: OSError) -> Refusal:
    """What a failed connect to the loopback says about its target.

    It says `unavailable` unless it is known to say nothing: anything that reports a time-out, and the
    worker's own shortage of descriptors, memory or ports. The default stays evidence, so that no unlisted
    errno turns a crashed backend into a row nobody may reap.
    """
    if reports_timeout(error) or error.errno in _OWN_WANT:
        return Refusal.NOT_SERVED
    return Refusal.UNAVAILABLE


def reports_timeout(error: OSError) -> bool:
    """Whether an error only says that time ran out; on a connect EAGAIN does too."""
    return isinstance(error, TimeoutError) or error.errno in {errno.ETIMEDOUT, errno.EAGAIN}


def _cut(text: str) -> str:
    """What came, short enough that the remedy behind it still fits a refusal."""
    return repr(text[:32])


def _refused(refusal: Refusal, message: str) -> StreamRefused:
    return StreamRefused(refusal.value, message)
