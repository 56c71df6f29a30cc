"""How a stream or a session ends when it ends badly: the two are different errors and stay different.

| error            | what ended                         | says about the far side                            |
|------------------|------------------------------------|----------------------------------------------------|
| `SessionDead`    | the whole session, with its cause  | nothing: the link is gone                          |
| `StreamReset`    | this one stream, by the peer       | it ended this exchange on purpose; the link lives  |
| `HandshakeBroken`| this one stream, before its answer | it answered nothing that can be read               |
| `StreamLimit`    | nothing yet: no stream was opened  | this side's own limit                              |
| `DeadlineExpired`| the caller's time                  | nothing                                            |
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Ending:
    """Why a session ended. `clean`: it was closed or went away on purpose and no stream was cut."""

    clean: bool
    cause: str


class SessionDead(ConnectionError):
    """The session under a stream has ended; `cause` says why. Never a statement about one stream."""

    def __init__(self, cause: str) -> None:
        """`cause` in words, as in `Ending.cause`."""
        self.cause = cause
        super().__init__(f"the tunnel session is over: {cause}")


class StreamReset(ConnectionResetError):
    """One stream was ended by a reset while its session lives on."""


class HandshakeBroken(StreamReset):
    """The stream ended, or said something unreadable, where its request or reply was due."""


class StreamLimit(ConnectionError):
    """No stream was opened because a limit of this session is reached; the text names the limit."""


class DeadlineExpired(TimeoutError):
    """The caller's own time ran out. Says nothing about anybody else."""
