"""What the core knows of one stream: credits, halves, and nothing of its bytes."""

from __future__ import annotations

from inference_fleet.tunnel.yamux.wire import INITIAL_WINDOW


class StreamState:
    """Both halves of one stream.

    `waiting` bytes lie in the shell, `send_credit` of them may go; `recv_credit` is what the peer may still
    send, `owed` is what the shell consumed and the peer was not yet told. What is left of `window` without these two
    lies unread in the shell. The last five are for `windows` alone.
    """

    __slots__ = (
        "ack_due",
        "acknowledged",
        "confirmed",
        "fin_received",
        "fin_sent",
        "fin_wanted",
        "in_turn",
        "measured_from",
        "ours",
        "owed",
        "recv_credit",
        "send_credit",
        "taken",
        "taken_before",
        "waiting",
        "window",
    )

    def __init__(self, *, ours: bool) -> None:
        """`ours` when this side opened it; the other side acknowledges."""
        self.ours = ours
        self.acknowledged = False
        self.ack_due = False
        self.send_credit = INITIAL_WINDOW
        self.recv_credit = INITIAL_WINDOW
        self.waiting = 0
        self.owed = 0
        self.fin_wanted = False
        self.fin_sent = False
        self.fin_received = False
        self.in_turn = False
        self.window = INITIAL_WINDOW
        self.taken = 0
        self.taken_before = 0
        self.measured_from: float | None = None
        self.confirmed = 0

    @property
    def sendable(self) -> bool:
        """Whether its next turn would send anything: data within the credit, or the FIN after all of it."""
        if self.waiting:
            return self.send_credit > 0
        return self.fin_wanted and not self.fin_sent
