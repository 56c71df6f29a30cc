"""Who a request speaks for, once it has shown a session or an API key."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Via(StrEnum):
    """What was shown."""

    SESSION = "session"
    KEY = "key"


@dataclass(frozen=True, kw_only=True)
class Principal:
    """An active user, and what they showed; `role` is `admin` or `user`."""

    user_id: str
    email: str
    name: str
    role: str
    via: Via

    @property
    def is_admin(self) -> bool:
        """Whether this user may see and change the fleet."""
        return self.role == "admin"

    @property
    def may_read_fleet(self) -> bool:
        """`GET /api/nodes` and its kin: any session, or an administrator's key."""
        return self.via is Via.SESSION or self.is_admin
