"""What a run leaves behind: its folder, its journal and the ledger of what must be ended or undone."""

from blackstart.record.folder import Run, RunFolderError
from blackstart.record.identity import Identity, boot_id, identity_of
from blackstart.record.journal import Journal, read_journal
from blackstart.record.ledger import Charge, ChargeKind, Ending, Ledger, State, read_ledger

__all__ = [
    "Charge",
    "ChargeKind",
    "Ending",
    "Identity",
    "Journal",
    "Ledger",
    "Run",
    "RunFolderError",
    "State",
    "boot_id",
    "identity_of",
    "read_journal",
    "read_ledger",
]
