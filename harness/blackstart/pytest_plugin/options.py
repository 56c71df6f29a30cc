"""The plugin's options, read once and strictly: a bad value is a usage error that names its remedy."""

from __future__ import annotations

import os
import random
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from blackstart.core.deadline import seconds
from blackstart.core.gate import GateError, required_capabilities, switched_on
from blackstart.core.redact import redact
from blackstart.infra.choice import parse_choice
from blackstart.infra.errors import BadPostgresOption

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

PRESETS = ("drill", "production")
SEED_INPUT = "blackstart_seed"
"""Where an xdist worker finds the seed its controller drew."""

_MOST_REPEATS = 10_000
_LARGEST_SEED = 2**63 - 1
_LONGEST_SHOWN = 100


@dataclass(frozen=True, kw_only=True)
class Options:
    """What was asked for, options before environment before defaults."""

    postgres: str
    preset: str
    run_dir: Path
    keep: bool
    repeat: int
    seed: int
    time_factor: float
    ci: bool
    required: tuple[str, ...]

    def reproducing(self, nodeid: str, *, command: str) -> str:
        """The command that runs one spec again as it ran here; a URL's password is not in it."""
        words = [command, shlex.quote(nodeid), "--bs-seed", str(self.seed)]
        if self.postgres != "embedded":
            words += ["--bs-postgres", shlex.quote(redact(self.postgres))]
        if self.preset != PRESETS[0]:
            words += ["--bs-preset", self.preset]
        if self.time_factor != 1:
            words += ["--bs-time-factor", f"{self.time_factor:g}"]
        return " ".join(words)


OPTIONS = pytest.StashKey[Options]()


def add_options(parser: pytest.Parser) -> None:
    """Declares `--bs-*` and the ini value that names the inventory."""
    group = parser.getgroup("blackstart", "real clusters of real processes")
    group.addoption(
        "--bs-postgres",
        metavar="WHICH",
        help="embedded (default), container, or the URL of a running server [BLACKSTART_POSTGRES]",
    )
    group.addoption(
        "--bs-preset", metavar="NAME", help="timings of the cluster: drill (default) or production"
    )
    group.addoption("--bs-run-dir", metavar="DIR", help="parent of the run folders (default: logs)")
    group.addoption(
        "--bs-keep", action="store_true", help="leave the processes and databases of a failed spec running"
    )
    group.addoption("--bs-repeat", metavar="N", help="run each collected spec N times")
    group.addoption("--bs-seed", metavar="N", help="seed of everything random (default: drawn and printed)")
    group.addoption(
        "--bs-time-factor",
        metavar="X",
        help="scales every time budget of every wait [BLACKSTART_TIME_FACTOR]",
    )
    parser.addini(
        "blackstart_inventory", "TOML list of what the specs must hold; empty: no tally", default=""
    )


def read_options(option: Callable[[str], object], *, environ: Mapping[str, str], rootpath: Path) -> Options:
    """The validated options; `pytest.UsageError` for a value that cannot be meant."""
    try:
        required = required_capabilities(environ.get("BLACKSTART_REQUIRE"))
    except GateError as error:
        raise pytest.UsageError(f"blackstart: {error}") from None
    factor_name, factor_text = _given(
        option("bs_time_factor"), "--bs-time-factor", environ, "BLACKSTART_TIME_FACTOR"
    )
    postgres_name, postgres = _given(option("bs_postgres"), "--bs-postgres", environ, "BLACKSTART_POSTGRES")
    return Options(
        postgres=_postgres(postgres_name, postgres or "embedded"),
        preset=_preset(str(option("bs_preset") or "drill")),
        run_dir=_run_dir(option("bs_run_dir"), rootpath),
        keep=bool(option("bs_keep")),
        repeat=_integer("--bs-repeat", option("bs_repeat"), default=1, lowest=1, highest=_MOST_REPEATS),
        seed=_integer(
            "--bs-seed",
            option("bs_seed"),
            default=random.SystemRandom().randrange(2**32),
            lowest=0,
            highest=_LARGEST_SEED,
        ),
        time_factor=_factor(factor_name, factor_text),
        ci=switched_on(environ.get("CI")),
        required=required,
    )


def options_of(config: pytest.Config) -> Options:
    """The options of a configured session."""
    return config.stash[OPTIONS]


def configure_options(config: pytest.Config) -> Options:
    """Reads them into the session. The seed is drawn once: workers are given it."""
    if (drawn := getattr(config, "workerinput", {}).get(SEED_INPUT)) is not None:
        config.option.bs_seed = drawn
    options = read_options(
        lambda name: config.getoption(name, default=None), environ=os.environ, rootpath=config.rootpath
    )
    config.stash[OPTIONS] = options
    config.option.bs_seed = str(options.seed)
    return options


def _given(
    option: object, option_name: str, environ: Mapping[str, str], variable: str
) -> tuple[str, str | None]:
    if option is not None:
        return option_name, str(option)
    return variable, environ.get(variable) or None


def _refused(name: str, value: object, wrong: str, remedy: str) -> pytest.UsageError:
    return pytest.UsageError(f"blackstart: {name}={value}: {wrong}; try: {remedy}")


def _postgres(name: str, value: str) -> str:
    try:
        parse_choice(value, thing=name)
    except BadPostgresOption as wrong:
        raise pytest.UsageError(f"blackstart: {wrong}") from None
    return value


def _preset(value: str) -> str:
    if value in PRESETS:
        return value
    raise _refused("--bs-preset", value, "no such preset", f"--bs-preset={' or '.join(PRESETS)}")


def _run_dir(value: object, rootpath: Path) -> Path:
    if value == "":
        raise _refused("--bs-run-dir", value, "names no folder", "--bs-run-dir=logs")
    path = rootpath / str(value or "logs")
    nearest = next(parent for parent in (path, *path.parents) if parent.exists())
    if not nearest.is_dir():
        raise _refused("--bs-run-dir", value, f"{nearest} is a file", "--bs-run-dir=logs")
    return path


def _integer(name: str, value: object, *, default: int, lowest: int, highest: int) -> int:
    if value is None:
        return default
    text = str(value)
    if (
        text.isascii()
        and text.isdigit()
        and len(text) <= len(str(highest))
        and lowest <= int(text) <= highest
    ):
        return int(text)
    raise _refused(
        name,
        text[:_LONGEST_SHOWN],
        f"not a whole number from {lowest} to {highest}",
        f"{name}={max(lowest, 1)}",
    )


def _factor(name: str, text: str | None) -> float:
    if text is None:
        return 1.0
    try:
        return seconds(name, float(text))
    except ValueError:
        raise _refused(name, text, "not a number above 0", f"{name}=2") from None
