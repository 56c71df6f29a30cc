"""What a process is told at its start, checked once: settings, `Timings` and deadlines."""

from inference_fleet.settings.deadline import Deadline
from inference_fleet.settings.errors import SettingsError
from inference_fleet.settings.frontend import FrontendSettings
from inference_fleet.settings.timings import Timings
from inference_fleet.settings.worker import WorkerSettings

__all__ = ["Deadline", "FrontendSettings", "SettingsError", "Timings", "WorkerSettings"]
