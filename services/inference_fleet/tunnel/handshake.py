"""How a stream starts: one request, one reply, then it belongs to whoever asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import msgspec

from inference_fleet.tunnel.errors import DeadlineExpired, HandshakeBroken
from inference_fleet.tunnel.frames import FRAME_LIMIT, FrameMalformed, read_frame, write_frame
from inference_fleet.tunnel.refusals import REFUSALS, Refusal, StreamRefused

if TYPE_CHECKING:
    from inference_fleet.settings import Deadline
    from inference_fleet.tunnel.session import Session
    from inference_fleet.tunnel.stream import Stream

VERSION: Final = 1
PROTOCOL_PAGE: Final = "docs/protocol.md"
"""Where whoever writes the other end finds what a request is."""
TAG_HTTP: Final = "http"
TAG_BACKEND: Final = "backend"
_MESSAGE_CHARS: Final = 500

_Text = Annotated[str, msgspec.Meta(max_length=320)]


class StreamRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a stream is for.

    | field         | meaning                                                                                |
    |---------------|----------------------------------------------------------------------------------------|
    | `tag`         | `http`: the worker's own server; `backend`: one of its model processes                 |
    | `target`      | `""` for `http`; `"127.0.0.1:PORT"` for `backend`: a name for a process, never dialled  |
    | `process_key` | which process is meant, so that a reused port never answers for another model          |
    | `node`        | whom the sender believes to be talking to                                              |
    | `epoch`       | the ownership the sender acts under                                                    |
    | `budget_ms`   | what is left of the caller's time; absent when the caller named none                   |
    | `traceparent` | W3C trace context                                                                      |
    """

    v: int = VERSION
    tag: Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
    target: _Text = ""
    process_key: _Text | None = None
    node: Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
    epoch: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
    budget_ms: Annotated[int, msgspec.Meta(ge=1, le=2**53)] | None = None
    traceparent: Annotated[str, msgspec.Meta(max_length=128)] | None = None

    def encode(self) -> bytes:
        """The JSON of the frame; `FrameMalformed` when it does not fit one."""
        present = {field: value for field, value in msgspec.structs.asdict(self).items() if value is not None}
        payload = msgspec.json.encode(present)
        if len(payload) > FRAME_LIMIT:
            raise FrameMalformed(f"a stream request of {len(payload)} bytes; allowed are {FRAME_LIMIT}")
        return payload

    @classmethod
    def decode(cls, payload: bytes) -> StreamRequest:
        """Read a frame; `FrameMalformed` names the field that is wrong. Unknown fields are a newer sender's."""
        try:
            return _DECODER.decode(payload)
        except (msgspec.DecodeError, RecursionError) as error:
            raise FrameMalformed(
                f"not a stream request: {error}; try: one as {PROTOCOL_PAGE} has it"
            ) from None


class _Reply(msgspec.Struct, frozen=True, kw_only=True):
    ok: bool
    code: Annotated[str, msgspec.Meta(max_length=64)] = ""
    message: Annotated[str, msgspec.Meta(max_length=FRAME_LIMIT)] = ""


_DECODER: Final = msgspec.json.Decoder(StreamRequest, strict=True)
_REPLIES: Final = msgspec.json.Decoder(_Reply, strict=True)


async def request_stream(session: Session, request: StreamRequest, *, deadline: Deadline) -> Stream:
    """Open a stream and ask for what `request` names; the stream comes back past its handshake.

    The caller's own time is checked first: an expired caller blames nobody. Raises `DeadlineExpired`,
    `StreamRefused`, `SessionDead`, `StreamReset` (`HandshakeBroken` for an unreadable reply) or `StreamLimit`;
    on every failure and on cancellation the stream is reset, so the far side stops its work.
    """
    if deadline.expired:
        raise DeadlineExpired(
            f"no time left to ask {request.node} for {request.tag} {request.target}".rstrip()
        )
    payload = request.encode()
    stream = session.open_stream()
    try:
        write_frame(stream, payload)
        await read_reply(stream, deadline=deadline)
    except StreamRefused:
        stream.close()
        raise
    except BaseException:
        stream.abort()
        raise
    return stream


async def read_reply(stream: Stream, *, deadline: Deadline) -> None:
    """Return on `ok`; otherwise `StreamRefused`, or `HandshakeBroken` when the reply is none."""
    try:
        reply = _REPLIES.decode(await read_frame(stream, deadline=deadline))
    except (FrameMalformed, msgspec.DecodeError, RecursionError) as error:
        raise HandshakeBroken(f"stream {stream.id}: the reply cannot be read: {error}") from None
    if not reply.ok:
        raise StreamRefused(reply.code, reply.message)


def accept_stream(stream: Stream) -> None:
    """Answer yes; what follows on the stream is the caller's."""
    write_frame(stream, _YES)


def refuse_stream(stream: Stream, refusal: Refusal, message: str) -> None:
    """Answer no, with the wire code of the one table, and close."""
    refuse_stream_as(stream, REFUSALS[refusal].code, message)


def refuse_stream_as(stream: Stream, code: str, message: str) -> None:
    """Pass a refusal on exactly as it came, known code or not: what a relay does with a worker's answer."""
    if not stream.is_closing():
        answer = {"ok": False, "code": code[:64], "message": message[:_MESSAGE_CHARS]}
        write_frame(stream, msgspec.json.encode(answer))
        stream.close()


_YES: Final = msgspec.json.encode({"ok": True})
