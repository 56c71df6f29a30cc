"""Mutations as a command: a guard that no spec holds is not there."""

from blackstart.attack.campaign import attack
from blackstart.attack.judge import Result, Verdict
from blackstart.attack.table import Mutation, TableError, load_tables

__all__ = ["Mutation", "Result", "TableError", "Verdict", "attack", "load_tables"]
