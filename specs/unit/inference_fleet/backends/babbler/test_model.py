"""A model is trained once for a text; what lies on disk is believed only when it is whole."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import pytest

from inference_fleet.backends.babbler.model import Model, corpus, fingerprint, load

if TYPE_CHECKING:
    from pathlib import Path


def test_the_shipped_text_is_long_enough_to_learn_from() -> None:
    assert len(corpus().encode()) >= 25 * 1024


def test_the_second_start_reads_what_the_first_one_learned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = load(corpus(), tmp_path)
    monkeypatch.setattr(Model, "train", _no_training)

    second = load(corpus(), tmp_path)

    assert second.counts == first.counts
    assert second.vocabulary.tokens == first.vocabulary.tokens
    with pytest.raises(AssertionError, match="trained"):  # the control: another text is another model
        load("some other text", tmp_path)


@pytest.mark.parametrize("harm", [b"", b"garbage", b"flip", b"half"])
def test_a_broken_cache_is_rebuilt(tmp_path: Path, harm: bytes, caplog: pytest.LogCaptureFixture) -> None:
    whole = load(corpus(), tmp_path)
    (file,) = tmp_path.iterdir()
    good = file.read_bytes()
    broken = {b"flip": good[:-1] + bytes([good[-1] ^ 1]), b"half": good[: len(good) // 2]}
    file.write_bytes(broken.get(harm, harm))

    again = load(corpus(), tmp_path)

    assert again.counts == whole.counts
    assert "does not match its checksum" in caplog.text
    assert file.read_bytes() == good, "the next start finds it whole again"
    assert list(tmp_path.iterdir()) == [file], "no draft is left behind"


def test_a_whole_file_of_another_shape_is_rebuilt(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    payload = b"\x93\x01\x02\x03"
    path = tmp_path / f"babbler-{fingerprint(corpus())}-v1.model"
    path.write_bytes(hashlib.sha256(payload).hexdigest().encode() + payload)

    assert load(corpus(), tmp_path).counts.size > 1
    assert "no model of this version" in caplog.text


def test_a_folder_that_cannot_be_written_is_said_and_not_fatal(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")

    assert load(corpus(), blocked).counts.size > 1
    assert "cannot be written" in caplog.text


def _no_training(text: str) -> Model:
    raise AssertionError(f"trained on {text[:20]!r}")
