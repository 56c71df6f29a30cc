"""What docs/workers.md promises is what the code takes."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from inference_fleet.backends.babbler.wire import MAX_TOKENS
from inference_fleet.backends.command import check_program
from inference_fleet.backends.manifest import _KEYS, read_manifests
from inference_fleet.settings import WorkerSettings
from inference_fleet.worker.logfiles import KEPT_A_MODEL, SIZE_LIMIT

from .doubles import Home

ROOT = Path(__file__).parents[4]
PAGE = (ROOT / "docs" / "workers.md").read_text()


@pytest.mark.holds("B-71", "B-101")
def test_the_page_offers_no_way_round_the_tunnel_and_no_inbound_rule() -> None:
    flat = " ".join(PAGE.split())

    assert "There is no inbound rule to write." in flat
    assert "`BLACKSTART_TUNNEL=false` ends the worker with exit status 2" in flat
    assert not [line for line in PAGE.splitlines() if "TUNNEL=false" in line and "restore" in line.lower()]


@pytest.mark.holds("B-101")
def test_the_page_names_every_setting_and_the_knobs_of_the_port_range(tmp_path: Path) -> None:
    fields = {field.name for field in dataclasses.fields(WorkerSettings)} - {"credential_file"}
    for name in (*fields, "node_credential_file"):
        assert f"`{name.upper()}`" in PAGE or f"`{name.upper()}`," in PAGE, name
    assert "`BLACKSTART_PORT_BASE` and `BLACKSTART_PORT_MAX`" in PAGE
    settings = Home(tmp_path, "http://f", base=20051).settings()
    assert settings.http_port == settings.port_base - 1


def test_the_page_names_every_key_of_a_model_and_its_limits() -> None:
    for key in _KEYS:
        assert f"| `{key}` |" in PAGE
    assert f"at most {MAX_TOKENS}" in PAGE
    assert KEPT_A_MODEL == 10
    assert SIZE_LIMIT == 16 * 1024 * 1024


def test_the_example_models_are_good_ones() -> None:
    manifests = read_manifests(ROOT / "examples" / "models")

    assert {manifest.name for manifest in manifests} == {"babbler", "echo"}
    for manifest in manifests:
        check_program(manifest)
