"""The table of mutations, read strictly: a row that cannot be meant stops everything before a process starts.

```toml
[[mutation]]
name = "presence-reads-the-stamp-before-heldness"   # a sentence in kebab case, unique over all tables
file = "services/inference_fleet/cluster/presence.py"
find = '''text that occurs once in the file'''
replace = '''what stands there in the mutant'''
spec = "specs/unit/.../test_presence.py::test_name" # the one spec that must go red
text = "a fragment its failing assertion must carry"
```
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from blackstart.core.commands import BadInput

if TYPE_CHECKING:
    from pathlib import Path

_KEYS = ("name", "file", "find", "replace", "spec", "text")
_MAY_BE_EMPTY = ("replace",)
_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_SPEC = re.compile(r"(?P<path>[^:\s]+\.py)(::[A-Za-z_][A-Za-z0-9_]*)+(\[.*\])?")
_LARGEST_TABLE = 4 * 1024 * 1024


class TableError(BadInput):
    """A table or a row that cannot be meant."""


@dataclass(frozen=True, kw_only=True)
class Mutation:
    """One row: the change to one file, and the one spec whose own assertion must notice."""

    name: str
    file: str
    find: str
    replace: str
    spec: str
    text: str

    @property
    def spec_file(self) -> str:
        """The spec's path without its name."""
        return self.spec.partition("::")[0]

    def mutate(self, source: str) -> str:
        """The mutant's source; `TableError` unless the text occurs exactly once."""
        times = source.count(self.find)
        if times != 1:
            raise TableError(
                "find",
                self.name,
                f"its text occurs {times} times in {self.file}, not once",
                remedy="more or less of the line",
            )
        return source.replace(self.find, self.replace)


def load_tables(folder: Path, *, root: Path) -> list[Mutation]:
    """All rows of `folder/*.toml` in the order of file names, each checked against the tree at `root`."""
    directory = folder if folder.is_absolute() else root / folder
    if not directory.is_dir():
        raise TableError("--table", folder, "not a folder", remedy="--table specs/mutations")
    rows: dict[str, Mutation] = {}
    for path in sorted(directory.glob("*.toml")):
        for number, raw in enumerate(_raw_rows(path), start=1):
            row = _row(raw, where=f"{path.name}[{number}]")
            if row.name in rows:
                raise TableError(f"{path.name}[{number}].name", row.name, "used twice", remedy="another name")
            _check_against_tree(row, root=root, where=f"{path.name}: {row.name}")
            rows[row.name] = row
    if not rows:
        raise TableError("--table", folder, "holds no rows", remedy="a *.toml with [[mutation]] in it")
    return list(rows.values())


def _raw_rows(path: Path) -> list[Any]:
    if path.stat().st_size > _LARGEST_TABLE:
        raise TableError("table", path, f"larger than {_LARGEST_TABLE} bytes", remedy="several tables")
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise TableError("table", path, f"not TOML: {error}", remedy="a table of [[mutation]] rows") from None
    unknown = sorted(set(document) - {"mutation"})
    if unknown:
        raise TableError("table", path, f"unknown key {unknown[0]}", remedy="[[mutation]] rows only")
    rows = document.get("mutation", [])
    if not isinstance(rows, list):
        raise TableError("table", path, "mutation is not an array of tables", remedy="[[mutation]]")
    return rows


def _row(raw: Any, *, where: str) -> Mutation:
    if not isinstance(raw, dict):
        raise TableError(where, raw, "not a table", remedy="[[mutation]]")
    for key in sorted(set(raw) - set(_KEYS)):
        raise TableError(f"{where}.{key}", raw[key], "unknown key", remedy=", ".join(_KEYS))
    for key in _KEYS:
        value = raw.get(key)
        if not isinstance(value, str) or (not value.strip() and key not in _MAY_BE_EMPTY):
            raise TableError(f"{where}.{key}", value, "a text is needed here", remedy=f'{key} = "..."')
    row = Mutation(**raw)
    if not _NAME.fullmatch(row.name):
        raise TableError(f"{where}.name", row.name, "not a sentence in kebab case", remedy="a-name-like-this")
    if not _SPEC.fullmatch(row.spec):
        raise TableError(f"{where}.spec", row.spec, "not path.py::test_name", remedy="a pytest node id")
    if row.find == row.replace:
        raise TableError(f"{where}.replace", row.name, "changes nothing", remedy="a real change")
    return row


def _check_against_tree(row: Mutation, *, root: Path, where: str) -> None:
    for key, relative in (("file", row.file), ("spec", row.spec_file)):
        path = (root / relative).resolve()
        if not path.is_relative_to(root.resolve()) or not path.is_file():
            raise TableError(
                f"{where}: {key}", relative, "not a file of this tree", remedy="a path from the root"
            )
    row.mutate((root / row.file).read_text(encoding="utf-8"))
    name = re.split(r"[\[]", row.spec.rpartition("::")[2])[0]
    if f"def {name}(" not in (root / row.spec_file).read_text(encoding="utf-8") and not name.startswith(
        "Test"
    ):
        raise TableError(
            f"{where}: spec", row.spec, "its file defines no such spec", remedy="an existing name"
        )
