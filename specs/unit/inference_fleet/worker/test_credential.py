"""The node's secret is on disk before anybody hears of it, and is never replaced behind its owner's back."""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path

import pytest

from inference_fleet.worker.credential import CredentialError, load_or_make, write_durably
from inference_fleet.worker.epochs import EpochFile


def test_a_credential_is_made_once_private_and_reused(tmp_path: Path) -> None:
    file = tmp_path / "data" / "credential"

    made = load_or_make(file)
    again = load_or_make(file)

    assert made.secret == again.secret
    assert len(bytes.fromhex(made.secret)) == 32
    assert made.sha256 == hashlib.sha256(made.secret.encode()).hexdigest()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert list(file.parent.iterdir()) == [file], "no draft is left behind"
    assert made.secret not in repr(made)
    assert load_or_make(tmp_path / "other").secret != made.secret


def test_the_file_and_its_folder_are_synced_before_the_credential_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    real = os.fsync

    def fsync(handle: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{handle}").readlink()))
        real(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    load_or_make(tmp_path / "new" / "credential")

    drafts = [place for place, path in enumerate(synced) if Path(path).name.startswith(".credential")]
    folders = [place for place, path in enumerate(synced) if path == str(tmp_path / "new")]
    assert str(tmp_path) in synced, "the entry of the new folder"
    assert drafts, "the content"
    assert folders, "the name"
    assert drafts[0] < folders[0], "the content first, then the name"


@pytest.mark.parametrize("content", ["", "  \n", "zz" * 32, "ab" * 31, "ab" * 33])
def test_a_file_without_a_credential_is_an_error_and_is_left_as_it_is(tmp_path: Path, content: str) -> None:
    file = tmp_path / "credential"
    file.write_text(content)

    with pytest.raises(CredentialError, match=f"BLACKSTART_NODE_CREDENTIAL_FILE={file}"):
        load_or_make(file)

    assert file.read_text() == content


def test_a_file_that_cannot_be_read_is_an_error_and_not_a_new_node(tmp_path: Path) -> None:
    with pytest.raises(CredentialError, match="cannot be read"):
        load_or_make(tmp_path)  # a folder stands where the file should


def test_a_credential_others_could_read_is_closed_to_them(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "credential"
    made = load_or_make(file)
    file.chmod(0o644)

    assert load_or_make(file).secret == made.secret
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "could be read by other users" in caplog.text


def test_of_two_workers_that_start_at_once_the_second_takes_the_firsts_credential(tmp_path: Path) -> None:
    file = tmp_path / "credential"
    write_durably(file, "ab" * 32 + "\n", exclusive=True)
    write_durably(file, "cd" * 32 + "\n", exclusive=True)

    assert load_or_make(file).secret == "ab" * 32


def test_the_highest_epoch_outlives_the_worker_and_a_broken_file_counts_as_none(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    epochs = EpochFile(tmp_path / "credential")
    seen = epochs.load()
    assert seen.value == 0
    seen.learn(7)
    seen.learn(5)
    epochs.keep(seen)
    assert EpochFile(tmp_path / "credential").load().value == 7
    assert not caplog.records

    for broken in ("", "x", "-3", "9" * 30, str(2**63)):
        epochs.path.write_text(broken)
        assert epochs.load().value == 0
    assert "holds no epoch" in caplog.text
