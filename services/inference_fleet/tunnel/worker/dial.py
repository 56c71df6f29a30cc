"""The worker's dial: who it is, what it has seen, and the epoch the replica's claim gave it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from inference_fleet.tunnel.dial import DialFailed, dial_websocket

if TYPE_CHECKING:
    import ssl as ssl_module

    from inference_fleet.settings import Timings
    from inference_fleet.tunnel.direct import DirectWebSocket

SUBPROTOCOL: Final = "blackstart.tunnel.v1"
BOOT_HEADER: Final = "X-Blackstart-Boot"
SEEN_EPOCH_HEADER: Final = "X-Blackstart-Seen-Epoch"
EPOCH_HEADER: Final = "X-Blackstart-Epoch"
_LAST_EPOCH: Final = (
    2**63 - 1
)  # the last that a sequence gives out; a replica would believe no worker that has seen more


@dataclass(frozen=True)
class Dialled:
    """A tunnel that stands: its carrier, and the epoch under which the replica claimed this node."""

    carrier: DirectWebSocket
    epoch: int


async def dial(
    frontend_url: str,
    *,
    node_id: str,
    credential: str,
    boot_id: str,
    seen_epoch: int,
    timings: Timings,
    ssl: ssl_module.SSLContext | None = None,
) -> Dialled:
    """Dial one replica (or a balancer before several); raises `DialRefused` or `DialFailed`."""
    url = f"{frontend_url.rstrip('/')}/api/node/{quote(node_id, safe='')}/tunnel"
    carrier, headers = await dial_websocket(
        url,
        subprotocol=SUBPROTOCOL,
        headers={
            "Authorization": f"Bearer {credential}",
            BOOT_HEADER: boot_id,
            SEEN_EPOCH_HEADER: str(seen_epoch),
        },
        timings=timings,
        ssl=ssl,
    )
    text = headers.get(EPOCH_HEADER.lower(), "")
    readable = text.isascii() and text.isdigit() and len(text) <= len(str(_LAST_EPOCH))
    if not readable or int(text) > _LAST_EPOCH:
        carrier.abort()
        raise DialFailed(
            f"{url}: the 101 carries {EPOCH_HEADER}={text[:40]!r}, not a number up to {_LAST_EPOCH}"
        )
    return Dialled(carrier, int(text))
