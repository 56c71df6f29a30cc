"""Work that one replica at a time may do: a lease row with an epoch that its writes carry.

A session's advisory lock says who may start; only an epoch checked *in the write* says whose result still counts
after a pause, a failover or a lost connection.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from inference_fleet.store.database import Database

# A sub-select for another statement's WITH or WHERE: one row while the grant holds, none once it does not. The row
# lock makes a take-over wait for the transaction that is writing under the grant.
LEASE_IS_HELD = """
SELECT 1 AS held FROM leases
WHERE name = %(lease_name)s AND holder = %(lease_holder)s AND epoch = %(lease_epoch)s
  AND expires_at > clock_timestamp()
FOR SHARE
"""

_ACQUIRE = """
INSERT INTO leases AS l (name, holder, epoch, expires_at)
VALUES (%(lease_name)s, %(lease_holder)s, 1, clock_timestamp() + %(ttl)s)
ON CONFLICT (name) DO UPDATE
SET holder = excluded.holder, epoch = l.epoch + 1, expires_at = clock_timestamp() + %(ttl)s
WHERE l.expires_at <= statement_timestamp()
RETURNING epoch
"""

_RENEW = """
UPDATE leases SET expires_at = clock_timestamp() + %(ttl)s
WHERE name = %(lease_name)s AND holder = %(lease_holder)s AND epoch = %(lease_epoch)s
  AND expires_at > statement_timestamp()
"""

# The row stays, so the epoch of the next holder is higher than every epoch before.
_RELEASE = """
UPDATE leases SET expires_at = clock_timestamp()
WHERE name = %(lease_name)s AND holder = %(lease_holder)s AND epoch = %(lease_epoch)s
  AND expires_at > statement_timestamp()
"""


@dataclass(frozen=True)
class LeaseGrant:
    """The right to do `name`'s work, as `holder`, until somebody else's epoch is higher."""

    name: str
    holder: str
    epoch: int

    @property
    def parameters(self) -> dict[str, Any]:
        """What `LEASE_IS_HELD` compares with."""
        return {"lease_name": self.name, "lease_holder": self.holder, "lease_epoch": self.epoch}


class Leases:
    """The rows of `leases`. An empty name or holder is refused: nobody holds nothing."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def acquire(self, name: str, holder: str, ttl_s: float) -> LeaseGrant | None:
        """Take the lease if nobody holds it now; None while somebody does, the same holder included."""
        if not name or not holder:
            raise ValueError(f"lease {name!r} for holder {holder!r}: neither may be empty")
        row = await self._database.row(
            _ACQUIRE, {"lease_name": name, "lease_holder": holder, "ttl": timedelta(seconds=ttl_s)}
        )
        return None if row is None else LeaseGrant(name=name, holder=holder, epoch=row["epoch"])

    async def renew(self, grant: LeaseGrant, ttl_s: float) -> bool:
        """Extend a grant that still holds; False means it is lost and its work must stop."""
        changed = await self._database.change(_RENEW, {**grant.parameters, "ttl": timedelta(seconds=ttl_s)})
        return changed == 1

    async def release(self, grant: LeaseGrant) -> bool:
        """Let the next replica have it at once."""
        return await self._database.change(_RELEASE, grant.parameters) == 1
