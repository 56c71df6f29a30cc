"""Which loopback port a stream of the tunnel is meant for, or why none is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from inference_fleet.settings.loopback import LOOPBACK
from inference_fleet.tunnel import TAG_BACKEND, TAG_HTTP, Refusal

if TYPE_CHECKING:
    from inference_fleet.tunnel.worker import Resolve, Target
    from inference_fleet.worker.supervisor import Supervisor


def resolver(*, http_port: int, supervisor: Supervisor | None) -> Resolve:
    """The worker's answers; an agent has no supervisor, runs no models and still serves `http`.

    | tag       | target             | answer                                                              |
    |-----------|--------------------|---------------------------------------------------------------------|
    | `http`    | empty              | the worker's own server                                             |
    | `backend` | `127.0.0.1:PORT`   | that port, while the process named by the key is ready, else `unavailable` |
    | other     |                    | `tag-unknown`                                                       |
    """

    def resolve(tag: str, target: str, process_key: str | None) -> Target | Refusal:
        if tag == TAG_HTTP:
            return Refusal.INVALID if target else (LOOPBACK, http_port)
        if tag != TAG_BACKEND:
            return Refusal.TAG_UNKNOWN
        host, _, port = target.partition(":")
        if host != LOOPBACK or not port.isascii() or not port.isdigit() or not process_key:
            return Refusal.INVALID
        if supervisor is None or not supervisor.serves(int(port), process_key):
            return Refusal.UNAVAILABLE
        return LOOPBACK, int(port)

    return resolve
