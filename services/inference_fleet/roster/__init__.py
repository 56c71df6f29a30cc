"""The nodes: registration, heartbeat, status. Both sides read `wire`; the database side is in `roster.frontend`."""

from inference_fleet.roster.wire import Heartbeat, ModelReport, Registered, Registration

__all__ = ["Heartbeat", "ModelReport", "Registered", "Registration"]
