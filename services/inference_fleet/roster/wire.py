"""The bodies a worker and a replica exchange: registration and heartbeat, with the limits of everything in them."""

from __future__ import annotations

from typing import Annotated

import msgspec

from inference_fleet.settings.plain import PLAIN

# `\Z`, since `$` also matches before a line feed at the end
_PLAIN = rf"^{PLAIN}*\Z"

Name = Annotated[
    str, msgspec.Meta(min_length=1, max_length=128, pattern=r"^[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?\Z")
]
BootId = Annotated[str, msgspec.Meta(min_length=8, max_length=64, pattern=r"^[A-Za-z0-9-]+\Z")]
Sha256 = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}\Z")]
Port = Annotated[int, msgspec.Meta(ge=1, le=65535)]
ModelName = Annotated[str, msgspec.Meta(min_length=1, max_length=256, pattern=_PLAIN)]
ProcessKey = Annotated[str, msgspec.Meta(min_length=1, max_length=320, pattern=_PLAIN)]
Key = Annotated[str, msgspec.Meta(min_length=1, max_length=64, pattern=_PLAIN)]
Labels = Annotated[
    dict[Key, Annotated[str, msgspec.Meta(max_length=256, pattern=_PLAIN)]],
    msgspec.Meta(max_length=64),
]
Capacity = Annotated[dict[Key, int | float], msgspec.Meta(max_length=64)]


class Registration(msgspec.Struct, frozen=True, kw_only=True):
    """`POST /api/node/register`: who the worker is. It states no address: nobody ever dials it."""

    name: Name
    node_type: Annotated[str, msgspec.Meta(pattern=r"^(backend|agent)\Z")]
    boot_id: BootId
    credential_sha256: Sha256
    capacity: Capacity = {}
    labels: Labels = {}


class Registered(msgspec.Struct, frozen=True, kw_only=True):
    """The 201 answer; `created_at` is RFC 3339 in UTC."""

    id: str
    name: str
    node_type: str
    status: str
    created_at: str


class ModelReport(msgspec.Struct, frozen=True, kw_only=True):
    """One model process of a worker. `port` is on the worker's own loopback; `state` starting, ready or failed."""

    name: ModelName
    port: Port
    process_key: ProcessKey
    state: Annotated[str, msgspec.Meta(pattern=r"^(starting|ready|failed)\Z")]


class Heartbeat(msgspec.Struct, frozen=True, kw_only=True):
    """`POST /api/node/{id}/heartbeat`: the supervisor is alive and these are its model processes."""

    boot_id: BootId
    models: Annotated[list[ModelReport], msgspec.Meta(max_length=256)] = []
    capacity: Capacity = {}
