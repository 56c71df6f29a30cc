"""Names of a run's databases and container: unique, safe to quote, and told from everybody else's by their prefix."""

from __future__ import annotations

import hashlib
import re

PREFIX = "blackstart_"
LONGEST = 50  # Postgres cuts names at 63 bytes without an error, and two cut names can be one
_DIGEST = 8


def bounded_name(text: str) -> str:
    """Lower-case letters, digits and `_`, at most 50 characters.

    An over-long text gives exactly 50, and ends in a digest of all of it: two long names that differ in their last
    character stay two.
    """
    clean = re.sub(r"[^a-z0-9_]+", "_", text.lower()).strip("_") or "unnamed"
    if len(clean) <= LONGEST:
        return clean
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST]
    return f"{clean[: LONGEST - _DIGEST - 1]}_{digest}"


def run_prefix(run_id: str) -> str:
    """What every database of a run begins with; short enough that a counter or a digest fits behind it."""
    name = bounded_name(PREFIX + run_id)
    longest = LONGEST - 14  # room for a template's digest, or for a process and a counter
    if len(name) > longest:
        digest = hashlib.sha256(run_id.encode()).hexdigest()[:_DIGEST]
        name = f"{name[: longest - _DIGEST - 1]}_{digest}"
    return name + "_"


def container_name(run_id: str) -> str:
    """The container of the run's server: one a run, and no other run's, so a leftover can never be in its way."""
    return f"blackstart-{run_id}-postgres"


def database_name(run_id: str, number: int, *, owner: int) -> str:
    """The `number`th database that process `owner` asked for in this run."""
    return bounded_name(f"{run_prefix(run_id)}{owner}_{number}")


def template_name(run_id: str, key: str) -> str:
    """The template that `key` names in this run."""
    digest = hashlib.sha256(key.encode()).hexdigest()[:_DIGEST]
    return bounded_name(f"{run_prefix(run_id)}t_{digest}")
