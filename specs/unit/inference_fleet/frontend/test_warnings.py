"""An operator is told of settings that leave a replica alone among its peers, and of nothing else."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import pytest
from specs.unit.inference_fleet.frontend.served import served, settings_of

from inference_fleet.frontend.warnings import warnings_of

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("changes", "peers", "names"),
    [
        ({}, 3, []),
        ({"registration_token": ""}, 0, ["BLACKSTART_REGISTRATION_TOKEN"]),
        ({"cluster_secret": ""}, 0, ["BLACKSTART_CLUSTER_SECRET"]),
        ({"auth_hmac_secret": ""}, 0, []),  # alone, its own secret is enough
        ({"auth_hmac_secret": ""}, 1, ["BLACKSTART_AUTH_HMAC_SECRET"]),
    ],
)
def test_each_setting_that_isolates_a_replica_is_named_with_what_follows(
    tmp_path: Path, changes: dict[str, str], peers: int, names: list[str]
) -> None:
    settings = settings_of("postgresql://a@b/c", tmp_path, **changes)
    assert [text.split()[0] for text in warnings_of(settings, peers=peers)] == names


def test_a_second_replica_with_a_secret_of_its_own_says_so_at_its_start(
    url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        async with served(url, tmp_path / "a", auth_hmac_secret=""):
            assert "BLACKSTART_AUTH_HMAC_SECRET" not in caplog.text, "the control: the first one is alone"
            async with served(url, tmp_path / "b", auth_hmac_secret="", instance_id="b"):
                assert "BLACKSTART_AUTH_HMAC_SECRET is empty beside 1 live replica(s)" in caplog.text

    with caplog.at_level(logging.WARNING):
        asyncio.run(story())
