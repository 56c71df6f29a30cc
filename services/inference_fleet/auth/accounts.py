"""Users and their sessions: the first user is the administrator, later ones wait for approval unless it is open.

A session's token is 32 random bytes that only the client holds. Its row is named by
HMAC-SHA256(token, secret), so a copy of the table is nobody's session, and every replica with the same secret
honours the same cookie.
"""

from __future__ import annotations

import secrets
import uuid
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from inference_fleet.auth.hmac_secret import keyed_hash
from inference_fleet.auth.principal import Principal, Via
from inference_fleet.settings.plain import PLAIN

if TYPE_CHECKING:
    from inference_fleet.auth.passwords import Passwords
    from inference_fleet.store import Database

COOKIE = "session"
_TOKEN_BYTES = 32
# Any constant will do: whoever registers first holds it until the count of users is settled.
_FIRST_USER_LOCK = 0x_B1AC_57A7

Email = Annotated[
    str, msgspec.Meta(min_length=3, max_length=254, pattern=r"^[^@\s\x00-\x1f\x7f]+@[^@\s\x00-\x1f\x7f]+\Z")
]
Password = Annotated[str, msgspec.Meta(min_length=8, max_length=256)]
PersonName = Annotated[str, msgspec.Meta(max_length=128, pattern=rf"^{PLAIN}*\Z")]


class Credentials(msgspec.Struct, frozen=True, kw_only=True):
    """The body of `register` and `login`."""

    email: Email
    password: Password
    name: PersonName = ""


class Standing(Enum):
    """How a registration or login ended."""

    WELCOME = "welcome"
    PENDING = "pending"
    EXISTS = "exists"
    WRONG = "wrong"


@dataclass(frozen=True, kw_only=True)
class Entry:
    """The end of a registration or login; `token` is there only with `WELCOME`, and nowhere else afterwards."""

    standing: Standing
    principal: Principal | None = None
    token: str = ""


class Accounts:
    """Registers, logs in and recognises users of one database."""

    def __init__(
        self, db: Database, *, secret: bytes, passwords: Passwords, registration: str, session_ttl_s: float
    ) -> None:
        self._db = db
        self._secret = secret
        self._passwords = passwords
        self._open = registration == "open"
        self._ttl_s = session_ttl_s

    async def register(self, wanted: Credentials) -> Entry:
        """A new user, or `EXISTS` for an address already known (which the answer must not betray by its time)."""
        email = _normal(wanted.email)
        password_hash = await self._passwords.hash(wanted.password)
        async with self._db.transaction() as conn:
            await conn.execute("SELECT pg_advisory_xact_lock(%s)", (_FIRST_USER_LOCK,))
            cursor = await conn.execute(
                """
                INSERT INTO users (id, email, name, password_hash, role, active, created_at)
                SELECT %(id)s, %(email)s, %(name)s, %(hash)s,
                       CASE WHEN first THEN 'admin' ELSE 'user' END, first OR %(open)s, clock_timestamp()
                  FROM (SELECT NOT EXISTS (SELECT FROM users) AS first) AS standing
                ON CONFLICT (email) DO NOTHING
                RETURNING id, email, name, role, active
                """,
                {
                    "id": str(uuid.uuid4()),
                    "email": email,
                    "name": wanted.name or email.partition("@")[0],
                    "hash": password_hash,
                    "open": self._open,
                },
            )
            row = await cursor.fetchone()
        if row is None:
            return Entry(standing=Standing.EXISTS)
        if not row["active"]:
            return Entry(standing=Standing.PENDING)
        return await self._welcome(row)

    async def login(self, shown: Credentials) -> Entry:
        """A session for the right password; a wrong one and an unknown address are the same answer."""
        row = await self._db.row(
            "SELECT id, email, name, role, active, password_hash FROM users WHERE email = %(email)s",
            {"email": _normal(shown.email)},
        )
        stored = None if row is None else str(row["password_hash"])
        if not await self._passwords.matches(shown.password, stored) or row is None:
            return Entry(standing=Standing.WRONG)
        if not row["active"]:
            return Entry(standing=Standing.PENDING)
        return await self._welcome(row)

    async def logout(self, token: str) -> bool:
        """End a session; False when there was none."""
        row_id = keyed_hash(self._secret, token)
        return await self._db.change("DELETE FROM sessions WHERE id = %(id)s", {"id": row_id}) > 0

    async def session(self, token: str) -> Principal | None:
        """Whose session a token is, or None; an unexpired row of an active user."""
        if not token or len(token) > 4 * _TOKEN_BYTES:
            return None
        row = await self._db.row(
            """
            SELECT u.id, u.email, u.name, u.role
              FROM sessions s JOIN users u ON u.id = s.user_id
             WHERE s.id = %(id)s AND s.expires_at > statement_timestamp() AND u.active
            """,
            {"id": keyed_hash(self._secret, token)},
        )
        return None if row is None else _principal(row)

    async def approve(self, user_id: str) -> bool:
        """Let a waiting user in; False when there is no such user."""
        return await self._db.change("UPDATE users SET active = true WHERE id = %(id)s", {"id": user_id}) > 0

    async def users(self) -> list[dict[str, Any]]:
        """Every user, without what they log in with."""
        return await self._db.rows(
            "SELECT id, email, name, role, active, created_at FROM users ORDER BY created_at, id"
        )

    async def forget_expired(self) -> int:
        """Delete sessions nobody can use any more; gives how many."""
        return await self._db.change("DELETE FROM sessions WHERE expires_at <= statement_timestamp()")

    async def _welcome(self, row: dict[str, Any]) -> Entry:
        token = secrets.token_hex(_TOKEN_BYTES)
        await self._db.change(
            """
            INSERT INTO sessions (id, user_id, created_at, expires_at)
            VALUES (%(id)s, %(user)s, clock_timestamp(), clock_timestamp() + make_interval(secs => %(ttl)s))
            """,
            {"id": keyed_hash(self._secret, token), "user": row["id"], "ttl": self._ttl_s},
        )
        return Entry(standing=Standing.WELCOME, principal=_principal(row), token=token)


def _principal(row: dict[str, Any]) -> Principal:
    return Principal(
        user_id=row["id"], email=row["email"], name=row["name"], role=row["role"], via=Via.SESSION
    )


def _normal(email: str) -> str:
    return email.strip().lower()
