"""Registering once: what each answer means, and when to ask again.

| answer                            | means                                              | then                          |
|-----------------------------------|----------------------------------------------------|-------------------------------|
| 2xx                               | the node is known                                  | go on                         |
| 409 `name_taken`                  | another holder of the name is alive                | wait `Retry-After`, ask again |
| any other 4xx but 408 and 429     | a verdict: the token, the body or the policy       | stop, quoting the answer      |
| 408, 429, 5xx, anything else      | nothing about this worker                          | back off, next address        |
| no answer                         | nothing about this worker                          | back off, next address        |
"""

from __future__ import annotations

import asyncio
import logging
import random
from enum import Enum
from typing import TYPE_CHECKING

from inference_fleet.roster.wire import Registered, Registration
from inference_fleet.tunnel import ReconnectSchedule
from inference_fleet.worker.frontends import Answer, Unreachable, decoded

if TYPE_CHECKING:
    from collections.abc import Callable

    from inference_fleet.settings import Timings
    from inference_fleet.worker.frontends import Frontends, Rotation

_log = logging.getLogger("blackstart.worker")
PATH = "/api/node/register"
_NO_VERDICT = frozenset({408, 429})


class RegistrationRejected(Exception):
    """The frontends refuse this worker; asking again would get the same answer."""

    def __init__(self, answer: Answer, *, quoted: str) -> None:
        self.status = answer.status
        super().__init__(
            f"{answer.url} refused this worker: HTTP {answer.status}: {quoted}; "
            "try: check BLACKSTART_REGISTRATION_TOKEN and BLACKSTART_NODE_NAME against the frontends' settings"
        )


class Verdict(Enum):
    """What an answer to a registration permits."""

    KNOWN = "go on"
    NAME_TAKEN = "wait for the holder to be stale"
    REJECTED = "stop"
    NOTHING = "back off and ask the next address"


def verdict(status: int, code: str) -> Verdict:
    """The table above."""
    if 200 <= status < 300:
        return Verdict.KNOWN
    if status == 409 and code == "name_taken":
        return Verdict.NAME_TAKEN
    if 400 <= status < 500 and status not in _NO_VERDICT:
        return Verdict.REJECTED
    return Verdict.NOTHING


async def register(
    frontends: Frontends,
    rotation: Rotation,
    registration: Registration,
    *,
    token: str,
    timings: Timings,
    draw: Callable[[], float] = random.random,
) -> Registered:
    """Ask until there is an answer that decides: `Registered`, or `RegistrationRejected` at once."""
    schedule = ReconnectSchedule(
        min_s=timings.registration_backoff_min_s,
        max_s=timings.registration_backoff_max_s,
        reset_after_s=timings.registration_backoff_max_s,
        draw=draw,
    )
    while True:
        try:
            answer = await _ask(frontends, rotation.current, registration, token=token, timings=timings)
        except Unreachable as error:
            pause_s = schedule.next_wait_s()
            _log.warning("not registered: %s; next address in %.1f s", error, pause_s)
            rotation.advance()
        else:
            if isinstance(answer, Registered):
                return answer
            pause_s = name_taken_pause_s(answer.retry_after_s, timings)
            _log.warning(
                "the name %s is held by another worker; asking again in %.1f s: %s",
                registration.name,
                pause_s,
                answer.quote(token, registration.credential_sha256),
            )
        await asyncio.sleep(pause_s)


async def _ask(
    frontends: Frontends, url: str, registration: Registration, *, token: str, timings: Timings
) -> Registered | Answer:
    """`Registered`, or the answer that says the name is taken; the other answers raise what they mean."""
    answer = await frontends.post(url, PATH, registration, bearer=token, within_s=timings.handshake_s)
    quoted = answer.quote(token, registration.credential_sha256)
    match verdict(answer.status, answer.code):
        case Verdict.KNOWN:
            return decoded(answer, Registered)
        case Verdict.NAME_TAKEN:
            return answer
        case Verdict.REJECTED:
            raise RegistrationRejected(answer, quoted=quoted)
        case Verdict.NOTHING:
            raise Unreachable(f"{answer.url}: HTTP {answer.status}: {quoted}")


def name_taken_pause_s(retry_after_s: float | None, timings: Timings) -> float:
    """The holder is stale after `Retry-After`; never less than the shortest back-off, nor past staleness itself."""
    longest = timings.heartbeat_stale_s + timings.registration_backoff_max_s
    wished = timings.registration_backoff_max_s if retry_after_s is None else retry_after_s
    return min(max(wished, timings.registration_backoff_min_s), longest)
