"""Real processes: started, held, hurt, and never left behind."""

from blackstart.process.earlier import Swept, end_unguarded, sweep_earlier
from blackstart.process.errors import (
    GuardianGone,
    HarnessFailure,
    LogTimeout,
    NotConfirmed,
    NotDead,
    ProcessDied,
    SpawnError,
    StopEscalated,
)
from blackstart.process.exits import Death, Exit
from blackstart.process.guard import Guardian, GuardianLease
from blackstart.process.handle import Handle
from blackstart.process.logfile import LogFile, Mark
from blackstart.process.procfs import environ_of
from blackstart.process.spawner import Spawner
from blackstart.record.ledger import Ending

__all__ = [
    "Death",
    "Ending",
    "Exit",
    "Guardian",
    "GuardianGone",
    "GuardianLease",
    "Handle",
    "HarnessFailure",
    "LogFile",
    "LogTimeout",
    "Mark",
    "NotConfirmed",
    "NotDead",
    "ProcessDied",
    "SpawnError",
    "Spawner",
    "StopEscalated",
    "Swept",
    "end_unguarded",
    "environ_of",
    "sweep_earlier",
]
