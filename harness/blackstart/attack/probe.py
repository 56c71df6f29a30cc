"""A pytest plugin that stands outside the attacked tree and writes down what happened, one JSON line a fact.

It is copied into a folder of its own, so no mutation can reach it; it imports nothing of blackstart.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import sysconfig
import traceback
from pathlib import Path
from typing import Any

import pytest

_REPORT = os.environ.get("_BLACKSTART_ATTACK_REPORT", os.devnull)
_MUTANT_MODULE = os.environ.get("_BLACKSTART_ATTACK_MODULE", "")
_LONGEST_TEXT = 200_000


def _tell(**fact: Any) -> None:
    with open(_REPORT, "a", encoding="utf-8") as report:  # noqa: PTH123 - nothing but open() at this place
        report.write(json.dumps(fact) + "\n")


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart() -> None:
    """The mutant must import before any spec is asked about it."""
    if not _MUTANT_MODULE:
        return
    try:
        importlib.import_module(_MUTANT_MODULE)
    except BaseException:  # noqa: BLE001 - whatever stops the import is the reason that is told
        _tell(fact="import", error=traceback.format_exc())


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_logstart(nodeid: str) -> None:
    """From here on every process that is started is told under this spec's name."""
    os.environ["_BLACKSTART_ATTACK_SPEC"] = nodeid


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """A file that does not collect."""
    if report.failed:
        _tell(fact="collect", nodeid=report.nodeid, text=str(report.longrepr)[:_LONGEST_TEXT])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    """Every phase of every spec, with what was raised and where."""
    report = yield
    _tell(
        fact="phase",
        nodeid=item.nodeid,
        when=report.when,
        outcome=report.outcome,
        seconds=call.duration,
        raised=_raised(call.excinfo.value) if call.excinfo else [],
        text=str(report.longreprtext)[:_LONGEST_TEXT] if report.longrepr else "",
    )
    return report


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """The session came to its end by itself, with this code of the judged tree in it."""
    if session.config.option.collectonly:
        _tell(fact="foreign", **_foreign())
    _tell(fact="end", exitstatus=int(exitstatus), modules=_modules())


def _raised(error: BaseException) -> list[dict[str, Any]]:
    """The exception, or those of a group: their types and the file each was raised in."""
    if isinstance(error, BaseExceptionGroup):
        return [one for member in error.exceptions for one in _raised(member)]
    frames = traceback.extract_tb(error.__traceback__)
    return [
        {
            "types": [kind.__name__ for kind in type(error).__mro__],
            "file": frames[-1].filename if frames else "",
            "line": frames[-1].lineno if frames else 0,
        }
    ]


def _modules() -> dict[str, str]:
    names = os.environ.get("_BLACKSTART_ATTACK_PACKAGES", "").split(",")
    loaded = {name: getattr(sys.modules.get(name), "__file__", None) for name in names if name}
    return {name: file for name, file in loaded.items() if file}


def _foreign() -> dict[str, list[str]]:
    """What collecting imported that belongs to Python or to an installed package, in the order it was asked for.

    Of these `rewritten` holds what pytest changed as it was imported. That is its own to import, row by row.
    """
    kinds: dict[str, list[str]] = {"names": [], "rewritten": []}
    standard = tuple(f"{sysconfig.get_path(name)}{os.sep}" for name in ("stdlib", "platstdlib"))
    for name, module in list(sys.modules.items()):
        spec = getattr(module, "__spec__", None)
        if (
            spec is None or spec.name != name or name.endswith("__main__")
        ):  # a second name of another, or a program
            continue
        if not _is_installed(spec.origin or "", standard):
            continue
        kinds["rewritten" if type(spec.loader).__name__ == "AssertionRewritingHook" else "names"].append(name)
    return kinds


def _is_installed(origin: str, standard: tuple[str, ...]) -> bool:
    if Path(origin).is_relative_to(Path.cwd()):  # the scratch copy, whatever lies in it
        return False
    if origin in {"built-in", "frozen"} or {"site-packages", "dist-packages"} & set(Path(origin).parts):
        return True
    return origin.startswith(standard)
