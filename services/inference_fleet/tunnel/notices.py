"""What a session tells its process for the metrics and the log: streams that were reset, and why; sends that stood still."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from inference_fleet.tunnel.yamux.stalls import CARRIER

if TYPE_CHECKING:
    from collections.abc import Callable

    from inference_fleet.telemetry.metrics import Metrics

_log = logging.getLogger(__name__)


class ResetCause(StrEnum):
    """Why a stream was reset, as the end that counts it knows it: a reset carries no reason on the wire."""

    ABORTED = "aborted"
    FAILED = "failed"
    UNREAD = "unread"
    LINGER = "linger"
    STALLED = "stalled"
    BACKLOG = "backlog"
    REFUSED = "refused"
    PEER = "peer"
    REFUSED_BY_PEER = "refused-by-peer"


MEANINGS: Final = {
    ResetCause.ABORTED: "whoever used it here gave it up",
    ResetCause.FAILED: "its protocol here failed",
    ResetCause.UNREAD: "it was closed here while its peer still sent",
    ResetCause.LINGER: "it was closed here and its peer did not finish in time",
    ResetCause.STALLED: "it was closed here and its peer took nothing of what was still to be sent",
    ResetCause.BACKLOG: "what it wrote found no room in the session's backlog",
    ResetCause.REFUSED: "the peer opened it past what this end takes",
    ResetCause.PEER: "the peer reset it",
    ResetCause.REFUSED_BY_PEER: "the peer reset it instead of acknowledging it",
}


class StallSide(StrEnum):
    """What made a send wait for longer than the notice time."""

    WINDOW = "window"
    CARRIER = "carrier"


_WAITS: Final = {
    StallSide.WINDOW: "has data and no credit: its reader at the peer takes nothing",
    StallSide.CARRIER: "takes nothing: the connection or its peer is slow",
}


@dataclass(frozen=True)
class Notices:
    """Who is told, of each reset and each stall once."""

    reset: Callable[[ResetCause], None]
    stalled: Callable[[StallSide], None]


def counted(metrics: Metrics) -> Notices:
    """Told to the metrics of this process, which shows each label from the start, at 0."""
    for cause in ResetCause:
        metrics.stream_resets.labels(cause.value)
    for side in StallSide:
        metrics.stream_stalls.labels(side.value)
    return Notices(
        reset=lambda cause: metrics.stream_resets.labels(cause.value).inc(),
        stalled=lambda side: metrics.stream_stalls.labels(side.value).inc(),
    )


class Reporter:
    """Tells all to `notices`, and the log at most one line of a kind in `quiet_s`, with how many it stands for."""

    def __init__(self, name: str, notices: Notices | None, *, quiet_s: float) -> None:
        """`name` is the session's."""
        self._name = name
        self._notices = notices
        self._quiet_s = quiet_s
        self._due: dict[str, float] = {}
        self._unsaid: dict[str, int] = {}

    def reset(self, stream: int, cause: ResetCause, now: float, *, why: str = "") -> None:
        """A stream was reset."""
        if self._notices is not None:
            self._notices.reset(cause)
        self._say(cause, now, f"stream {stream} was reset ({cause}): {why or MEANINGS[cause]}")

    def stalled(self, stream: int, now: float) -> None:
        """A stream, or the carrier, has waited for longer than is usual."""
        side = StallSide.CARRIER if stream == CARRIER else StallSide.WINDOW
        if self._notices is not None:
            self._notices.stalled(side)
        what = "the carrier" if stream == CARRIER else f"stream {stream}"
        self._say(side, now, f"stalled ({side}): {what} {_WAITS[side]}")

    def _say(self, kind: str, now: float, text: str) -> None:
        if now < self._due.get(kind, now):
            self._unsaid[kind] = self._unsaid.get(kind, 0) + 1
            return
        self._due[kind] = now + self._quiet_s
        more = self._unsaid.pop(kind, 0)
        _log.info("tunnel %s: %s%s", self._name, text, f" ({more} more before it)" if more else "")
