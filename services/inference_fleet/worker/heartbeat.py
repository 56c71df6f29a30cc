"""Telling the roster that this supervisor is alive and what it runs.

Nothing here can see the tunnel, on purpose. A heartbeat withheld while the tunnel is down would report an
unreachable worker as a dead one, on the one path that has no grace; and nothing here registers again, for
registering forgets what the roster knew of a live worker's models.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from inference_fleet.roster.wire import Heartbeat
from inference_fleet.worker.frontends import Unreachable

if TYPE_CHECKING:
    from collections.abc import Callable

    from inference_fleet.roster.wire import ModelReport
    from inference_fleet.settings import Timings
    from inference_fleet.worker.frontends import Answer, Frontends, Rotation

_log = logging.getLogger("blackstart.worker")
_SAYINGS = {
    401: "the credential is not this node's any more: it was revoked, or another worker registered under the name",
    403: "the credential belongs to another node",
    404: "the roster does not know this node: an operator deleted it, or the database was restored from before",
    409: "another boot of this node is the current one: two workers share one name and credential",
}


@dataclass(frozen=True, kw_only=True)
class Identity:
    """As whom a worker speaks."""

    node_id: str
    boot_id: str
    credential: str


async def beat(
    frontends: Frontends,
    rotation: Rotation,
    *,
    identity: Identity,
    reports: Callable[[], list[ModelReport]],
    changed: asyncio.Event,
    timings: Timings,
) -> NoReturn:
    """Beat every `heartbeat_s`, and at once when a model's state changes, for ever.

    A beat may take half the time after which its absence is noticed; an address that does not answer is left
    for the next one. What the frontends answer is said once for each change of it.
    """
    loop = asyncio.get_running_loop()
    last = ""
    while True:
        due = loop.time() + timings.heartbeat_s
        changed.clear()
        said = await _once(frontends, rotation, identity=identity, models=reports(), timings=timings)
        if said != last:
            _log.log(logging.WARNING if said else logging.INFO, "heartbeat: %s", said or "accepted")
            last = said
        try:
            async with asyncio.timeout(max(0.0, due - loop.time())):
                await changed.wait()
        except TimeoutError:
            continue


async def _once(
    frontends: Frontends,
    rotation: Rotation,
    *,
    identity: Identity,
    models: list[ModelReport],
    timings: Timings,
) -> str:
    body = Heartbeat(boot_id=identity.boot_id, models=models)
    try:
        answer = await frontends.post(
            rotation.current,
            f"/api/node/{identity.node_id}/heartbeat",
            body,
            bearer=identity.credential,
            within_s=timings.heartbeat_stale_s / 2,
        )
    except Unreachable as error:
        rotation.advance()
        return str(error)
    if answer.status >= 500:
        rotation.advance()
    return "" if 200 <= answer.status < 300 else _saying(answer, identity)


def _saying(answer: Answer, identity: Identity) -> str:
    quoted = answer.quote(identity.credential)
    meaning = _SAYINGS.get(answer.status)
    return f"HTTP {answer.status}: {quoted}" + (f" ({meaning})" if meaning else "")
