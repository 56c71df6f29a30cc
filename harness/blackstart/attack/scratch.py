"""A scratch copy of the tree: rows are applied there and nowhere else, and it is gone afterwards."""

from __future__ import annotations

import compileall
import itertools
import os
import py_compile
import shutil
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from blackstart.core.commands import SetUpFailed

if TYPE_CHECKING:
    from pathlib import Path


_STAMPS = itertools.count(1_000_000_000)


@dataclass(frozen=True, kw_only=True)
class Layout:
    """What of a tree is code: the folders on the import path, and the packages in them."""

    root: Path
    sources: tuple[str, ...]
    packages: tuple[str, ...]

    def module_of(self, file: str) -> str:
        """The module a file is imported as; empty for what is no module, or acts when imported."""
        if not file.endswith(".py") or file.endswith("__main__.py"):
            return ""
        for source in self.sources:
            prefix = f"{source}/" if source != "." else ""
            if file.startswith(prefix):
                parts = file.removeprefix(prefix).removesuffix(".py").split("/")
                named = parts[:-1] if parts[-1] == "__init__" else parts
                return ".".join(named) if named and named[0] in self.packages else ""
        return ""


def layout_of(root: Path) -> Layout:
    """The source folders are those of the tree that Python already searches; else `src`, else the root."""
    root = root.resolve()
    searched = [
        path.relative_to(root).as_posix()
        for path in dict.fromkeys(_resolved(entry, root) for entry in sys.path)
        if path != root and path.is_relative_to(root) and "site-packages" not in path.parts and path.is_dir()
        if not any(part.startswith(".") for part in path.relative_to(root).parts)
    ]
    sources = [one for one in searched if any((root / one).glob("*/__init__.py"))]
    if not sources:
        sources = ["src"] if (root / "src").is_dir() else ["."]
    packages = {path.parent.name for source in sources for path in (root / source).glob("*/__init__.py")}
    return Layout(root=root, sources=tuple(sources), packages=tuple(sorted(packages)))


def tree_files(root: Path) -> list[str]:
    """Every file git tracks or would track: what a commit of this tree would hold."""
    try:
        listed = subprocess.run(
            ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            check=True,
            capture_output=True,
        ).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise SetUpFailed(
            "tree", root, f"git cannot list it: {error}", remedy="a checkout, with git installed"
        ) from None
    names = dict.fromkeys(os.fsdecode(name) for name in listed.split(b"\0") if name)
    return [name for name in names if (root / name).is_file()]


def copy_tree(layout: Layout, files: list[str], target: Path) -> None:
    """Copies the files and compiles the sources; a changed file is noticed by its time (see `replace_file`)."""
    for name in files:
        destination = target / name
        destination.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(layout.root / name, destination)
    for source in layout.sources:
        compileall.compile_dir(
            target / source,
            quiet=2,
            workers=1,
            invalidation_mode=py_compile.PycInvalidationMode.TIMESTAMP,
        )


def replace_file(path: Path, text: str) -> None:
    """The new content appears at once under the old name, with the old mode and a time no other content ever had.

    What Python has compiled and pytest rewritten is kept for the next row, by the file's size and the second of its
    change alone; a mutant often has the size of what it replaces, and comes and goes within a second.
    """
    fresh = path.with_name(f".{path.name}.mutant")
    fresh.write_text(text, encoding="utf-8")
    fresh.chmod(path.stat().st_mode)
    stamp = next(_STAMPS)
    os.utime(fresh, (stamp, stamp))
    fresh.replace(path)


def _resolved(entry: str, root: Path) -> Path:
    return (root / entry).resolve()
