"""API keys: shown once when made, stored only as a keyed hash, and gone the moment they are deleted."""

from __future__ import annotations

import secrets
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from inference_fleet.auth.hmac_secret import keyed_hash
from inference_fleet.auth.principal import Principal, Via
from inference_fleet.settings.plain import PLAIN

if TYPE_CHECKING:
    from inference_fleet.store import Database

PREFIX = "bsk_"
_SECRET_BYTES = 32
_LONGEST = 128

KeyName = Annotated[str, msgspec.Meta(min_length=1, max_length=128, pattern=rf"^{PLAIN}+\Z")]


class KeyWanted(msgspec.Struct, frozen=True, kw_only=True):
    """The body of `POST /api/auth/keys`."""

    name: KeyName


@dataclass(frozen=True, kw_only=True)
class NewKey:
    """A key at the only moment it can be seen."""

    id: str
    name: str
    key: str


class ApiKeys:
    """The API keys of one database."""

    def __init__(self, db: Database, *, secret: bytes) -> None:
        self._db = db
        self._secret = secret

    async def make(self, user_id: str, name: str) -> NewKey:
        """A new key of a user."""
        made = NewKey(id=str(uuid.uuid4()), name=name, key=PREFIX + secrets.token_urlsafe(_SECRET_BYTES))
        await self._db.change(
            """
            INSERT INTO api_keys (id, user_id, name, key_hash, created_at)
            VALUES (%(id)s, %(user)s, %(name)s, %(hash)s, clock_timestamp())
            """,
            {"id": made.id, "user": user_id, "name": name, "hash": keyed_hash(self._secret, made.key)},
        )
        return made

    async def list_of(self, user_id: str) -> list[dict[str, Any]]:
        """A user's keys: id, name and when they were made."""
        return await self._db.rows(
            "SELECT id, name, created_at FROM api_keys WHERE user_id = %(user)s ORDER BY created_at, id",
            {"user": user_id},
        )

    async def delete(self, user_id: str, key_id: str) -> bool:
        """End one of a user's own keys; False when they have no such key."""
        query = "DELETE FROM api_keys WHERE id = %(id)s AND user_id = %(user)s"
        return await self._db.change(query, {"id": key_id, "user": user_id}) > 0

    async def owner(self, key: str) -> Principal | None:
        """Whose key it is, or None; only an active user's key opens anything."""
        if not key.startswith(PREFIX) or len(key) > _LONGEST:
            return None
        row = await self._db.row(
            """
            SELECT u.id, u.email, u.name, u.role
              FROM api_keys k JOIN users u ON u.id = k.user_id
             WHERE k.key_hash = %(hash)s AND u.active
            """,
            {"hash": keyed_hash(self._secret, key)},
        )
        if row is None:
            return None
        return Principal(
            user_id=row["id"], email=row["email"], name=row["name"], role=row["role"], via=Via.KEY
        )
