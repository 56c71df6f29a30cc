"""What one replica asks of another: a mark of one hop, and the worker's stream request inside it.

`{"v": 1, "relay": {"from", "hop"}, "request": {...}}`. The request is *contained*, so the owner opens the
worker's stream at once and one reply travels back; a worker's header timer never waits for a peer's round trip.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import msgspec

from inference_fleet.tunnel import PROTOCOL_PAGE, FrameMalformed, StreamRequest

FRAME_LIMIT = 8192
HOP = 1
_VERSION = 1


class RelayInvalid(Exception):
    """A relay frame that asks for nothing this replica does; the text says what is wrong with it."""


class _Mark(msgspec.Struct, frozen=True, kw_only=True):
    origin: Annotated[str, msgspec.Meta(min_length=1, max_length=128)] = msgspec.field(name="from")
    hop: int


class _Frame(msgspec.Struct, frozen=True, kw_only=True):
    v: int
    relay: _Mark
    request: msgspec.Raw


@dataclass(frozen=True)
class RelayRequest:
    """One relayed stream: which replica asks, and what it would have sent the worker."""

    origin: str
    request: StreamRequest

    def encode(self) -> bytes:
        """The frame's payload."""
        mark = _Mark(origin=self.origin, hop=HOP)
        return msgspec.json.encode(_Frame(v=_VERSION, relay=mark, request=msgspec.Raw(self.request.encode())))

    @classmethod
    def decode(cls, payload: bytes, *, peer: str) -> RelayRequest:
        """A frame from the peer whose token opened the link; `RelayInvalid` says what is wrong.

        The origin must be that peer, and the hop the first: a relay is never passed on, whoever asks.
        """
        try:
            frame = msgspec.json.decode(payload, type=_Frame)
        except (ValueError, RecursionError) as error:
            raise RelayInvalid(
                f"the relay frame cannot be read: {error}; try: one as {PROTOCOL_PAGE} has it"
            ) from None
        if frame.v != _VERSION:  # before what is inside: another version's request is another's to read
            raise RelayInvalid(f"relay version {frame.v} is not spoken here; try: version {_VERSION}")
        if frame.relay.origin != peer:
            raise RelayInvalid(f"the frame speaks for {frame.relay.origin}; try: {peer}, as its link does")
        if frame.relay.hop != HOP:
            raise RelayInvalid(
                f"hop {frame.relay.hop}: a relay is one hop and is never passed on; try: the owner itself"
            )
        try:
            return cls(frame.relay.origin, StreamRequest.decode(bytes(frame.request)))
        except FrameMalformed as error:
            raise RelayInvalid(f"the relay frame cannot be read: {error}") from None

    def aged(self, elapsed_s: float) -> RelayRequest:
        """The same request after time has passed here: its budget only shortens, and is never written as zero."""
        budget_ms = self.request.budget_ms
        if budget_ms is None:
            return self
        left_ms = max(1, budget_ms - int(elapsed_s * 1000))
        return RelayRequest(self.origin, msgspec.structs.replace(self.request, budget_ms=left_ms))
