"""What a stream asks of its session: each knows the other by this alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from inference_fleet.settings import Timings
    from inference_fleet.tunnel.notices import ResetCause
    from inference_fleet.tunnel.stream import Stream


class StreamHost(Protocol):
    """What a stream asks of its session."""

    @property
    def timings(self) -> Timings:
        """How long a closed stream may take."""

    def stream_accepted(self, stream: Stream) -> None:
        """What the peer opened is taken, and it is to be told so."""

    def stream_room(self, stream: Stream) -> int:
        """How many more bytes may wait."""

    def stream_overflows(self, stream: Stream) -> None:
        """It was given more than that: it is to be reset."""

    def stream_wrote(self, stream: Stream, length: int) -> None:
        """More bytes wait, and may be taken before this returns."""

    def stream_finished(self, stream: Stream) -> None:
        """FIN after what waits."""

    def stream_reset(self, stream: Stream, cause: ResetCause) -> None:
        """RST now."""

    def stream_consumed(self, stream: Stream, length: int) -> None:
        """Credit for the peer."""

    def stream_dropped(self, stream: Stream, unsent: int) -> None:
        """The stream left the session; `unsent` bytes of it will never go."""

    def stream_credit(self, stream: Stream) -> int:
        """What its peer lets it send now."""
