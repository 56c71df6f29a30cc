"""The table is read strictly."""

from __future__ import annotations

from pathlib import Path

import pytest

from blackstart.attack import TableError, load_tables

GOOD = {
    "name": "held-is-always-true",
    "file": "src/pkg/guard.py",
    "find": 'owner != ""',
    "replace": "True",
    "spec": "specs/test_guard.py::test_nobody_holds_it",
    "text": "an empty owner holds nothing",
}


def write(project: Path, *rows: dict[str, str], raw: str = "") -> Path:
    folder = project / "tables"
    folder.mkdir(exist_ok=True)
    text = "".join(
        "[[mutation]]\n" + "".join(f"{key} = '''{value}'''\n" for key, value in row.items()) for row in rows
    )
    (folder / "one.toml").write_text(text + raw)
    return folder


def test_a_good_row_is_read_as_it_stands(project: Path) -> None:
    [row] = load_tables(write(project, GOOD), root=project)
    assert row.name == GOOD["name"]
    assert row.spec_file == "specs/test_guard.py"
    assert "return True" in row.mutate((project / row.file).read_text())


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"name": "Held Is"}, "not a sentence in kebab case"),
        ({"file": "src/pkg/none.py"}, "not a file of this tree"),
        ({"file": "../../etc/passwd"}, "not a file of this tree"),
        ({"find": "no such text"}, "occurs 0 times"),
        ({"find": "owner"}, "times in src/pkg/guard.py, not once"),
        ({"replace": 'owner != ""'}, "changes nothing"),
        ({"spec": "specs/test_guard.py"}, "not path.py::test_name"),
        ({"spec": "specs/test_none.py::test_one"}, "not a file of this tree"),
        ({"spec": "specs/test_guard.py::test_nobody_wrote"}, "defines no such spec"),
        ({"text": " "}, "a text is needed here"),
        ({"when": "now"}, "unknown key"),
    ],
)
def test_a_row_that_cannot_be_meant_is_named_with_what_is_wrong(
    project: Path, change: dict[str, str], told: str
) -> None:
    with pytest.raises(TableError, match="; try: ") as caught:
        load_tables(write(project, {**GOOD, **change}), root=project)
    assert told in str(caught.value)


def test_a_missing_key_is_named(project: Path) -> None:
    with pytest.raises(TableError, match=r"one\.toml\[1\]\.text"):
        load_tables(
            write(project, {key: value for key, value in GOOD.items() if key != "text"}), root=project
        )


def test_a_name_is_used_once_over_all_tables(project: Path) -> None:
    folder = write(project, GOOD)
    (folder / "two.toml").write_text((folder / "one.toml").read_text())
    with pytest.raises(TableError, match=r"two\.toml\[1\]\.name=held-is-always-true: used twice"):
        load_tables(folder, root=project)


@pytest.mark.parametrize(
    ("raw", "told"),
    [
        ("[[mutation", "not TOML"),
        ("rows = 1", "unknown key rows"),
        ("mutation = 3", "not an array"),
        ("", "holds no rows"),
    ],
)
def test_a_table_that_is_none_is_named(project: Path, raw: str, told: str) -> None:
    with pytest.raises(TableError, match=told):
        load_tables(write(project, raw=raw), root=project)


def test_a_folder_that_is_not_there_is_named(project: Path) -> None:
    with pytest.raises(TableError, match="--table=nowhere: not a folder"):
        load_tables(Path("nowhere"), root=project)
