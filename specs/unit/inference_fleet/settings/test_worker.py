"""A worker's settings; without its tunnel it must not start."""

from __future__ import annotations

from pathlib import Path

import pytest

from inference_fleet.settings import SettingsError, WorkerSettings

GOOD = {"BLACKSTART_FRONTEND_URLS": "http://front:8080/", "BLACKSTART_REGISTRATION_TOKEN": "token-token"}


def read(**changes: str) -> WorkerSettings:
    return WorkerSettings.from_environ(
        {**GOOD, **{f"BLACKSTART_{name}": value for name, value in changes.items()}}
    )


@pytest.mark.holds("B-90")
def test_a_worker_without_its_tunnel_is_told_why_it_may_not_start() -> None:
    with pytest.raises(SettingsError, match="only way to reach a worker"):
        read(TUNNEL="false")
    assert read(TUNNEL="true").tunnel


@pytest.mark.holds("B-86")
def test_its_own_server_listens_before_its_first_model_process() -> None:
    assert read().http_port == read().port_base - 1 == 20050
    assert read(PORT_BASE="30000").port_max == 30099
    for wrong in ({"PORT_BASE": "1"}, {"PORT_BASE": "0"}, {"PORT_BASE": "70000"}, {"PORT_MAX": "100"}):
        with pytest.raises(SettingsError, match="BLACKSTART_PORT_"):
            read(**wrong)


def test_urls_lose_their_slash_and_wrong_ones_are_named() -> None:
    assert read(FRONTEND_URLS="http://a:1/, https://b:2").frontend_urls == ("http://a:1", "https://b:2")
    for wrong in (
        "",
        "a:1",
        "ftp://a",
        "http://",
        "http://f:99999",
        "http://f:0",
        "http://a,http://f:x",
        "http://[f",
    ):
        with pytest.raises(SettingsError, match="BLACKSTART_FRONTEND_URLS"):
            read(FRONTEND_URLS=wrong)


def test_the_token_is_required_and_never_printed() -> None:
    with pytest.raises(SettingsError, match="BLACKSTART_REGISTRATION_TOKEN"):
        read(REGISTRATION_TOKEN="")
    assert "token-token" not in repr(read())


def test_the_credential_lies_in_the_data_folder_unless_said_otherwise() -> None:
    assert read(DATA_DIR="/data").credential_file == Path("/data/node-credential")
    assert read(NODE_CREDENTIAL_FILE="/else/where").credential_file == Path("/else/where")


@pytest.mark.parametrize("name", ["a/b", "a\u202eb", "x" * 300, "-a"])
def test_a_name_no_node_can_have_is_refused(name: str) -> None:
    with pytest.raises(SettingsError, match="BLACKSTART_NODE_NAME"):
        read(NODE_NAME=name)
