"""Faults, one file a family: each is put in, seen, taken out and seen gone. Import a family from its own module."""

from blackstart.core.fault import Evidence, FaultNotConfirmed, FaultNotLifted, Finding
from blackstart.faults.fault import Fault, Standing, standing

__all__ = ["Evidence", "Fault", "FaultNotConfirmed", "FaultNotLifted", "Finding", "Standing", "standing"]
