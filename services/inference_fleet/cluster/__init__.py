"""Instances, ownership of workers' connections with epochs, presence, and the membership loop."""

from inference_fleet.cluster.addresses import UndialableAddress, discover_address
from inference_fleet.cluster.claims import (
    EPOCH_LEAP_MAX,
    BootConflict,
    Claim,
    ConnectionRow,
    EpochLeap,
    Owner,
    Superseded,
)
from inference_fleet.cluster.contact import Contact
from inference_fleet.cluster.instances import Instance, InstanceIdTaken, Swept
from inference_fleet.cluster.membership import Membership
from inference_fleet.cluster.presence import (
    PRESENCE_COLUMNS,
    PRESENCE_JOIN,
    Presence,
    PresenceFacts,
    presence_facts,
    presence_of,
    presence_windows,
)
from inference_fleet.cluster.reassertion import Reasserted
from inference_fleet.cluster.registry import Registry

__all__ = [
    "EPOCH_LEAP_MAX",
    "PRESENCE_COLUMNS",
    "PRESENCE_JOIN",
    "BootConflict",
    "Claim",
    "ConnectionRow",
    "Contact",
    "EpochLeap",
    "Instance",
    "InstanceIdTaken",
    "Membership",
    "Owner",
    "Presence",
    "PresenceFacts",
    "Reasserted",
    "Registry",
    "Superseded",
    "Swept",
    "UndialableAddress",
    "discover_address",
    "presence_facts",
    "presence_of",
    "presence_windows",
]
