"""The secret behind session and key rows: pinned, or made once a data folder."""

from __future__ import annotations

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from inference_fleet.auth.hmac_secret import FILE_NAME, keyed_hash, load_hmac_secret
from inference_fleet.settings import SettingsError

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.holds("B-151")
def test_two_data_folders_have_two_secrets_and_a_pinned_one_is_shared(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    assert load_hmac_secret("", one) != load_hmac_secret("", two)
    assert load_hmac_secret("", one) == load_hmac_secret("", one), "a restart keeps its sessions"
    assert load_hmac_secret("pinned", one) == load_hmac_secret("pinned", two) == b"pinned"


def test_the_file_is_the_owners_alone_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    load_hmac_secret("", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [FILE_NAME]
    assert stat.S_IMODE((tmp_path / FILE_NAME).stat().st_mode) == 0o600


def test_processes_that_start_at_once_agree_on_one_secret(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        secrets = set(pool.map(lambda _: load_hmac_secret("", tmp_path), range(32)))
    assert len(secrets) == 1


def test_a_folder_that_cannot_be_used_or_a_damaged_file_names_the_setting(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingsError, match="BLACKSTART_DATA_DIR"):
        load_hmac_secret("", tmp_path / "file")
    (tmp_path / FILE_NAME).write_bytes(b"short")
    with pytest.raises(SettingsError, match="delete that file"):
        load_hmac_secret("", tmp_path)


def test_a_row_is_named_by_secret_and_token_together() -> None:
    token = os.urandom(8).hex()
    assert keyed_hash(b"one", token) != keyed_hash(b"two", token)
    assert token not in keyed_hash(b"one", token)
