"""Every time constant of the fleet, in two presets that differ only in how fast they notice things.

| preset       | for                            | detection                                          |
|--------------|--------------------------------|----------------------------------------------------|
| `production` | real fleets                    | offline about 75 s after the last heartbeat        |
| `drill`      | rehearsals and specs           | about twenty times faster; no deadline under 2 s   |

All values are seconds. A field is overridden by `BLACKSTART_TIMING_<FIELD IN CAPITALS>`, as in
`BLACKSTART_TIMING_RECONNECT_GRACE_S=120`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Self

from inference_fleet.settings.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Mapping

_PREFIX = "BLACKSTART_TIMING_"
_LONGEST_S = 366 * 24 * 3600.0


@dataclass(frozen=True, kw_only=True)
class Timings:
    """Durations in seconds, grouped by the fact they serve; see the module's table for the presets."""

    # Heartbeat: is the worker's supervisor alive
    heartbeat_s: float = 10.0
    heartbeat_stale_s: float = 60.0
    health_tick_s: float = 15.0
    health_lease_s: float = 45.0

    # Presence: can anyone reach the worker
    instance_beat_s: float = 5.0
    instance_liveness_s: float = 15.0
    reconnect_grace_s: float = 90.0
    departed_retention_floor_s: float = 3600.0
    missing_address_notice_s: float = 300.0

    # The worker's dial
    reconnect_backoff_min_s: float = 1.0
    reconnect_backoff_max_s: float = 30.0
    reconnect_reset_after_s: float = 30.0
    handshake_s: float = 10.0
    registration_backoff_min_s: float = 2.0
    registration_backoff_max_s: float = 30.0
    conflict_damping_s: float = 30.0

    # Tunnel sessions and streams
    keepalive_interval_s: float = 15.0
    keepalive_timeout_s: float = 10.0
    stream_header_s: float = 10.0
    stream_open_s: float = 15.0
    stream_linger_s: float = 10.0
    splice_stall_s: float = 30.0
    write_stall_s: float = 60.0
    stall_notice_s: float = 5.0
    local_round_trip_s: float = 0.002
    relay_frame_s: float = 15.0
    peer_idle_s: float = 300.0
    peer_token_ttl_s: float = 60.0
    drain_wait_s: float = 30.0

    # Requests
    request_s: float = 600.0
    backend_connect_s: float = 5.0
    body_read_s: float = 30.0
    http_idle_s: float = 5.0

    # Model processes on a worker
    backend_start_s: float = 60.0
    backend_stop_s: float = 10.0
    backend_silent_s: float = 120.0
    backend_probe_s: float = 5.0
    backend_poll_s: float = 0.2
    backend_restart_min_s: float = 1.0
    backend_restart_max_s: float = 30.0

    # Database, start and stop
    database_connect_s: float = 10.0
    database_statement_s: float = 10.0
    start_s: float = 60.0
    shutdown_s: float = 30.0

    # Authentication
    session_ttl_s: float = 30 * 24 * 3600.0
    session_rotate_s: float = 3600.0
    auth_window_s: float = 60.0

    # The observer itself
    loop_lag_sample_s: float = 0.5

    def __post_init__(self) -> None:
        """Refuse values no fleet can run on, and pairs that contradict each other."""
        for field in fields(self):
            value = getattr(self, field.name)
            if not 0 < value <= _LONGEST_S:
                raise SettingsError(
                    variable_of(field.name), value, f"seconds above 0 and at most {_LONGEST_S:g}"
                )
        for shorter, longer in _ORDERED:
            if getattr(self, shorter) >= getattr(self, longer):
                raise SettingsError(
                    variable_of(shorter),
                    getattr(self, shorter),
                    f"less than {variable_of(longer)} ({getattr(self, longer):g})",
                )

    @classmethod
    def production(cls) -> Self:
        """The values real fleets run on."""
        return cls()

    @classmethod
    def drill(cls) -> Self:
        """Detection about twenty times faster; deadlines for handshakes, headers and start-up stay at 2 s or more."""
        return cls(
            heartbeat_s=0.5,
            heartbeat_stale_s=3.0,
            health_tick_s=0.5,
            health_lease_s=2.0,
            instance_beat_s=0.25,
            instance_liveness_s=1.5,
            reconnect_grace_s=5.0,
            departed_retention_floor_s=60.0,
            missing_address_notice_s=5.0,
            reconnect_backoff_min_s=0.05,
            reconnect_backoff_max_s=1.0,
            reconnect_reset_after_s=2.0,
            handshake_s=2.5,
            registration_backoff_min_s=0.1,
            registration_backoff_max_s=1.0,
            conflict_damping_s=1.5,
            keepalive_interval_s=0.75,
            keepalive_timeout_s=2.0,
            stream_header_s=2.5,
            stream_open_s=3.0,
            stream_linger_s=2.0,
            splice_stall_s=3.0,
            write_stall_s=10.0,
            stall_notice_s=0.5,
            relay_frame_s=3.0,
            peer_idle_s=15.0,
            drain_wait_s=2.0,
            request_s=120.0,
            backend_connect_s=2.0,
            body_read_s=3.0,
            backend_start_s=20.0,
            backend_stop_s=3.0,
            backend_silent_s=8.0,
            backend_probe_s=2.0,
            backend_poll_s=0.03,
            backend_restart_min_s=0.1,
            backend_restart_max_s=1.0,
            database_connect_s=3.0,
            database_statement_s=5.0,
            start_s=30.0,
            shutdown_s=5.0,
            loop_lag_sample_s=0.25,
        )

    @classmethod
    def preset(cls, name: str) -> Self:
        """`production` or `drill`; anything else is a `SettingsError`."""
        if name == "production":
            return cls.production()
        if name == "drill":
            return cls.drill()
        raise SettingsError("BLACKSTART_TIMINGS", name, "drill or production")

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> Self:
        """The preset named by `BLACKSTART_TIMINGS` (default production) with single fields overridden."""
        timings = cls.preset(environ.get("BLACKSTART_TIMINGS") or "production")
        known = {variable_of(field.name): field.name for field in fields(cls)}
        changes: dict[str, float] = {}
        for variable, text in environ.items():
            if not variable.startswith(_PREFIX):
                continue
            if variable not in known:
                raise SettingsError(variable, text, f"a timing that exists: {', '.join(sorted(known))}")
            try:
                changes[known[variable]] = float(text)
            except ValueError:
                raise SettingsError(variable, text, "a number of seconds") from None
        return replace(timings, **changes)

    @property
    def departed_retention_s(self) -> float:
        """How long a departed ownership row is kept: twice the grace, never under the floor.

        Retention below the grace would purge a departure before it can be called gone, and a gone worker
        would read unknown for ever.
        """
        return max(self.departed_retention_floor_s, 2 * self.reconnect_grace_s)

    @property
    def offline_within_s(self) -> float:
        """The longest a dead worker may still read healthy: a stale heartbeat plus one health tick."""
        return self.heartbeat_stale_s + self.health_tick_s

    @property
    def gone_within_s(self) -> float:
        """The longest a worker without a tunnel may read anything but gone, its owner being dead too."""
        return self.instance_liveness_s + self.instance_beat_s + self.reconnect_grace_s


def variable_of(field: str) -> str:
    """The environment variable that overrides a field: `reconnect_grace_s` gives `BLACKSTART_TIMING_RECONNECT_GRACE_S`."""
    return _PREFIX + field.upper()


_ORDERED = (
    ("heartbeat_s", "heartbeat_stale_s"),
    ("health_tick_s", "health_lease_s"),
    ("instance_beat_s", "instance_liveness_s"),
    ("reconnect_backoff_min_s", "reconnect_backoff_max_s"),
    ("registration_backoff_min_s", "registration_backoff_max_s"),
    ("backend_restart_min_s", "backend_restart_max_s"),
)
