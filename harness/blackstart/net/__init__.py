"""Addresses: leased across processes, and proven to be our own child's once bound."""

from blackstart.net.leases import HOST, LeaseFolderError, NoPorts, PortLease, held_leases, lease_ports
from blackstart.net.listeners import StrangerListens, assert_listener, listener_of, name_holder
from blackstart.process.sockets import Holder, is_free

__all__ = [
    "HOST",
    "Holder",
    "LeaseFolderError",
    "NoPorts",
    "PortLease",
    "StrangerListens",
    "assert_listener",
    "held_leases",
    "is_free",
    "lease_ports",
    "listener_of",
    "name_holder",
]
