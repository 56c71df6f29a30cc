"""Options are read once and strictly."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from blackstart.pytest_plugin.options import Options, read_options

if TYPE_CHECKING:
    from pathlib import Path


def read(tmp_path: Path, environ: dict[str, str] | None = None, **options: Any) -> Options:
    return read_options(options.get, environ=environ or {}, rootpath=tmp_path)


def test_nothing_given_is_embedded_postgres_on_drill_timings_with_a_drawn_seed(tmp_path: Path) -> None:
    options = read(tmp_path)
    assert (options.postgres, options.preset, options.repeat, options.time_factor) == (
        "embedded",
        "drill",
        1,
        1.0,
    )
    assert options.run_dir == tmp_path / "logs"
    assert not options.ci
    assert read(tmp_path).seed != options.seed


def test_the_command_that_reproduces_a_spec_has_every_option_that_differs_and_no_password(
    tmp_path: Path,
) -> None:
    plain = read(tmp_path, bs_seed="7")
    assert plain.reproducing("test_a.py::test_b[x y]", command="ci/test") == (
        "ci/test 'test_a.py::test_b[x y]' --bs-seed 7"
    )
    asked = read(
        tmp_path,
        bs_seed="7",
        bs_postgres="postgresql://me:hunter22@db/x",
        bs_preset="production",
        bs_time_factor="2",
    )
    told = asked.reproducing("test_a.py::test_b", command="pytest")
    assert "hunter22" not in told
    assert told.startswith("pytest test_a.py::test_b --bs-seed 7 --bs-postgres ")
    assert told.endswith(" --bs-preset production --bs-time-factor 2")


def test_an_option_outranks_its_variable(tmp_path: Path) -> None:
    environ = {"BLACKSTART_TIME_FACTOR": "3", "BLACKSTART_POSTGRES": "container"}
    assert read(tmp_path, environ).time_factor == 3
    assert read(tmp_path, environ).postgres == "container"
    assert read(tmp_path, environ, bs_time_factor="2").time_factor == 2
    assert read(tmp_path, environ, bs_postgres="embedded").postgres == "embedded"


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("bs_preset", "fast", r"--bs-preset=fast: no such preset; try: --bs-preset=drill or production"),
        ("bs_run_dir", "", r"--bs-run-dir=: names no folder; try: --bs-run-dir=logs"),
        ("bs_repeat", "0", r"--bs-repeat=0: not a whole number from 1"),
        ("bs_repeat", "many", r"--bs-repeat=many"),
        ("bs_seed", "-1", r"--bs-seed=-1: not a whole number from 0"),
        ("bs_seed", "1e9", r"--bs-seed=1e9"),
        ("bs_seed", "9" * 5000, r"--bs-seed=9+: not a whole number from 0"),
        ("bs_time_factor", "0", r"--bs-time-factor=0: not a number above 0; try: --bs-time-factor=2"),
        ("bs_time_factor", "nan", r"--bs-time-factor=nan"),
        ("bs_postgres", "mysql", r"--bs-postgres=mysql"),
        ("bs_postgres", "postgresql://u:hidden@host:99999/db", r"--bs-postgres="),
    ],
)
def test_a_value_that_cannot_be_meant_names_its_option_and_the_remedy(
    tmp_path: Path, name: str, value: str, told: str
) -> None:
    with pytest.raises(pytest.UsageError, match=told) as caught:
        read_options({name: value}.get, environ={}, rootpath=tmp_path)
    assert "; try: " in str(caught.value)
    assert "hidden" not in str(caught.value)


def test_a_value_from_the_environment_names_its_variable(tmp_path: Path) -> None:
    with pytest.raises(pytest.UsageError, match="BLACKSTART_TIME_FACTOR=fast: not a number"):
        read(tmp_path, {"BLACKSTART_TIME_FACTOR": "fast"})
    with pytest.raises(pytest.UsageError, match="BLACKSTART_POSTGRES=mysql"):
        read(tmp_path, {"BLACKSTART_POSTGRES": "mysql"})
    with pytest.raises(pytest.UsageError, match="BLACKSTART_REQUIRE=docker: not a capability"):
        read(tmp_path, {"BLACKSTART_REQUIRE": "docker"})


def test_a_run_folder_that_is_a_file_is_refused_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    with pytest.raises(pytest.UsageError, match=r"--bs-run-dir=taken: .*taken is a file"):
        read(tmp_path, bs_run_dir="taken")
    with pytest.raises(pytest.UsageError, match="is a file"):
        read(tmp_path, bs_run_dir="taken/below")
    assert read(tmp_path, bs_run_dir="fresh/below").run_dir == tmp_path / "fresh" / "below"


@pytest.mark.holds("B-204")
def test_ci_is_on_unless_it_is_off(tmp_path: Path) -> None:
    assert read(tmp_path, {"CI": "true"}).ci
    assert read(tmp_path, {"CI": "treu"}).ci
    assert not read(tmp_path, {"CI": "false"}).ci
