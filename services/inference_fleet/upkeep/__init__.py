"""Acting on absence: what each outcome permits, the health monitor, the reaper. Read `outcomes` first."""

from inference_fleet.upkeep.monitor import LEASE_NAME, Change, HealthMonitor
from inference_fleet.upkeep.outcomes import PERMITS, Fact, Permit, Source, permits
from inference_fleet.upkeep.reaper import Reaper
from inference_fleet.upkeep.verdicts import Verdict, verdict_of, verdicts_of

__all__ = [
    "LEASE_NAME",
    "PERMITS",
    "Change",
    "Fact",
    "HealthMonitor",
    "Permit",
    "Reaper",
    "Source",
    "Verdict",
    "permits",
    "verdict_of",
    "verdicts_of",
]
