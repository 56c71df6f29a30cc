"""Stands as `sitecustomize` in every Python process of an attacked run and tells where the packages came from.

It is copied beside the probe, outside the attacked tree. A child that was started without the scratch copy on its
path never loads this file, so the starting of such a child is told by its parent.
"""

from __future__ import annotations

import json
import os
import sys
from importlib.machinery import PathFinder
from typing import Any

_WITNESS = os.environ.get("_BLACKSTART_ATTACK_WITNESS", "")
_PACKAGES = frozenset(filter(None, os.environ.get("_BLACKSTART_ATTACK_PACKAGES", "").split(",")))
_FIRST = os.environ.get("PYTHONPATH", "").split(os.pathsep)[0]


def _tell(**fact: Any) -> None:
    spec = os.environ.get("_BLACKSTART_ATTACK_SPEC", "")
    line = json.dumps({"pid": os.getpid(), "spec": spec, **fact}) + "\n"
    descriptor = os.open(_WITNESS, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.write(descriptor, line.encode())
    finally:
        os.close(descriptor)


class _Finder:
    """Sees the first import of each watched package and leaves the finding to the ordinary finder."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> Any:
        """Told once a package; everything else is none of its business."""
        if name not in _PACKAGES:
            return None
        spec = PathFinder.find_spec(name, path, target)
        _tell(fact="package", name=name, origin=spec.origin if spec else None)
        return spec


def _watch_children(event: str, arguments: tuple[Any, ...]) -> None:
    """A Python child whose environment drops the path would run the tree that is not under attack."""
    if event == "subprocess.Popen":
        executable, argv, _, environment = arguments
    elif event in {"os.posix_spawn", "os.exec"}:
        executable, argv, environment = arguments
    else:
        return
    if environment is None or not _is_python(executable, argv):
        return
    values = {os.fsdecode(key): os.fsdecode(value) for key, value in dict(environment).items()}
    if _FIRST not in values.get("PYTHONPATH", "").split(os.pathsep):
        _tell(fact="stray", argv=[os.fsdecode(word) for word in argv][:8])


def _is_python(executable: Any, argv: Any) -> bool:
    words = [os.fsdecode(executable)] if executable else []
    if isinstance(argv, list | tuple) and argv:
        words.append(os.fsdecode(argv[0]))
    return any(os.path.basename(word).startswith("python") for word in words)  # noqa: PTH119 - pathlib is slow to import here


if _WITNESS and _PACKAGES:
    sys.meta_path.insert(0, _Finder)
    sys.addaudithook(_watch_children)
