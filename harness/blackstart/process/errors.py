"""What goes wrong with processes, in two classes that stay apart: the process's doing, and the harness's own."""

from __future__ import annotations


class HarnessFailure(RuntimeError):
    """The harness could not do its part; says nothing about the product."""


class GuardianGone(HarnessFailure):
    """Nobody would end what is spawned now."""


class SpawnError(HarnessFailure):
    """The command could not be executed."""


class StopEscalated(AssertionError):
    """A graceful stop needed SIGKILL. The process is dead all the same."""


class ProcessDied(AssertionError):
    """A wait lost the process it depends on."""


class LogTimeout(AssertionError):
    """The awaited line did not come in time."""


class NotDead(HarnessFailure):
    """SIGKILL was sent and the process, or a port of its, is still there."""


class NotConfirmed(HarnessFailure):
    """A signal was sent and its effect was not seen."""
