"""A model that cannot be run is refused with the file, the key, the value and the remedy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from inference_fleet.backends.command import check_program
from inference_fleet.backends.manifest import (
    MODELS_LIMIT,
    Backend,
    ManifestError,
    read_manifest,
    read_manifests,
)
from inference_fleet.settings import SettingsError

if TYPE_CHECKING:
    from pathlib import Path


def model(models_dir: Path, text: str, name: str = "m") -> Path:
    folder = models_dir / name
    folder.mkdir(parents=True)
    (folder / "model.toml").write_text(text)
    return folder


def test_a_babbler_needs_its_name_alone(tmp_path: Path) -> None:
    manifest = read_manifest(model(tmp_path, 'backend = "babbler"'))

    assert (manifest.name, manifest.backend, manifest.ready_path) == ("m", Backend.BABBLER, "/healthz")
    assert manifest.tokens_per_second == 0


def test_every_key_is_read(tmp_path: Path) -> None:
    text = """
        backend = "command"
        command = ["serve", "--port={port}", "--pace={tokens_per_second}"]
        ready_path = "/health"
        tokens_per_second = 20
    """
    manifest = read_manifest(model(tmp_path, text))

    assert manifest.command == ("serve", "--port={port}", "--pace={tokens_per_second}")
    assert manifest.ready_path == "/health"
    assert manifest.tokens_per_second == 20


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ("", "backend", "None"),
        ('backend = "llama"', "backend", "llama"),
        ('backend = "decider"', "backend", "decider"),
        ("backend = 3", "backend", "3"),
        ('backend = "babbler"\nspeed = 3', "speed", "3"),
        ('backend = "babbler"\ncommand = ["x", "{port}"]', "command", "x"),
        ('backend = "command"', "command", "None"),
        ('backend = "command"\ncommand = "x {port}"', "command", "x {port}"),
        ('backend = "command"\ncommand = []', "command", "[]"),
        ('backend = "command"\ncommand = ["x", 3]', "command", "3"),
        ('backend = "command"\ncommand = ["x", "--port", "8000"]', "command", "8000"),
        ('backend = "command"\ncommand = ["x\\u0000", "{port}"]', "command", "x"),
        ('backend = "command"\ncommand = ["x", "{port}"]\ntokens_per_second = 3', "tokens_per_second", "3"),
        ('backend = "command"\ncommand = ["x", "{port}"]\nseed = 3', "seed", "3"),
        ('backend = "babbler"\nready_path = "healthz"', "ready_path", "healthz"),
        ('backend = "babbler"\nready_path = "/a b"', "ready_path", "/a b"),
        ('backend = "babbler"\ntokens_per_second = -1', "tokens_per_second", "-1"),
        ('backend = "babbler"\ntokens_per_second = nan', "tokens_per_second", "nan"),
        ('backend = "babbler"\ntokens_per_second = true', "tokens_per_second", "True"),
        ('backend = "babbler"\nseed = "x"', "seed", "x"),
        ("backend = ", "file", "Invalid value"),
    ],
)
def test_what_is_wrong_is_named_with_file_key_value_and_remedy(
    tmp_path: Path, text: str, key: str, value: str
) -> None:
    folder = model(tmp_path, text)

    with pytest.raises(ManifestError) as caught:
        read_manifest(folder)

    told = str(caught.value)
    assert told.startswith(f"{folder / 'model.toml'}: {key}=")
    assert value in told
    assert "must be " in told


@pytest.mark.parametrize("name", ["with space", "x" * 129, "trailing.", "r\u202etl"])
def test_a_folder_name_that_is_no_model_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ManifestError, match="name="):
        read_manifest(model(tmp_path, 'backend = "babbler"', name))


def test_a_file_that_is_no_text_or_too_long_is_refused(tmp_path: Path) -> None:
    folder = model(tmp_path, "")
    (folder / "model.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ManifestError, match="UTF-8"):
        read_manifest(folder)
    (folder / "model.toml").write_text("#" * 70_000)
    with pytest.raises(ManifestError, match="at most 65536 bytes"):
        read_manifest(folder)


def test_folders_without_a_manifest_and_hidden_ones_are_passed_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model(tmp_path, 'backend = "babbler"', "b")
    model(tmp_path, 'backend = "babbler"', "a")
    (tmp_path / "arriving").mkdir()
    (tmp_path / ".staging").mkdir()
    (tmp_path / "README").write_text("not a model")

    assert [manifest.name for manifest in read_manifests(tmp_path)] == ["a", "b"]
    assert "arriving has no model.toml" in caplog.text
    assert ".staging" not in caplog.text


def test_a_folder_that_is_not_there_holds_no_models_and_a_file_is_no_folder(tmp_path: Path) -> None:
    assert read_manifests(tmp_path / "nowhere") == ()
    (tmp_path / "file").write_text("")
    said = rf"^BLACKSTART_MODELS_DIR={tmp_path}/file: must be a folder of model folders; try: "
    with pytest.raises(SettingsError, match=said):
        read_manifests(tmp_path / "file")


def test_one_model_too_many_is_refused(tmp_path: Path) -> None:
    for number in range(MODELS_LIMIT + 1):
        model(tmp_path, 'backend = "babbler"', f"m{number}")

    with pytest.raises(ManifestError, match=f"at most {MODELS_LIMIT}"):
        read_manifests(tmp_path)


def test_a_program_that_is_not_there_is_refused_before_anything_starts(tmp_path: Path) -> None:
    def command(name: str, program: str) -> None:
        text = f'backend = "command"\ncommand = ["{program}", "{{port}}"]'
        check_program(read_manifest(model(tmp_path, text, name)))

    with pytest.raises(ManifestError, match="no-such-program"):
        command("a", "no-such-program")
    with pytest.raises(ManifestError, match=r"\./server"):
        command("b", "./server")
    command("c", "{python}")
    command("d", "sh")
