"""The lock file answers for pyproject.toml: every dependency is locked, in a version it allows, with its hashes.

Works without a network, so that lint says the same anywhere.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

_PIN = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)(?:\[[^\]]*\])?==(?P<version>[^\s;\\]+)")


def main(lock: Path, project: Path) -> int:
    """Prints what is wrong; 0 when nothing is."""
    pins, bare = _read(lock)
    document = tomllib.loads(project.read_text(encoding="utf-8"))
    wanted = [*document["project"]["dependencies"], *document["build-system"]["requires"]]
    for group in document.get("dependency-groups", {}).values():
        wanted += group
    wrong = [f"{lock}: {name} has no hash; try: lock it with hashes" for name in bare]
    for text in wanted:
        requirement = Requirement(text)
        version = pins.get(canonicalize_name(requirement.name))
        if version is None:
            wrong.append(f"{lock}: {requirement.name} is not locked; try: lock it again")
        elif not requirement.specifier.contains(version, prereleases=True):
            wrong.append(f"{lock}: {requirement.name}=={version}: {project} wants {requirement.specifier}")
    for line in wrong:
        print(line, file=sys.stderr)
    return 1 if wrong else 0


def _read(lock: Path) -> tuple[dict[str, str], list[str]]:
    """The pins by name, and those without a hash."""
    pins: dict[str, str] = {}
    bare: list[str] = []
    for entry in re.split(r"(?<!\\)\n", lock.read_text(encoding="utf-8")):
        found = _PIN.match(entry)
        if not found:
            continue
        name = canonicalize_name(found["name"])
        pins[name] = found["version"]
        if "--hash=sha256:" not in entry:
            bare.append(name)
    return pins, bare


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
