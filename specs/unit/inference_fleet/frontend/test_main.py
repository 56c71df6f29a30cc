"""The process: what it says about wrong settings, and how it leaves."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

import httpx2
import pytest
from specs.unit.inference_fleet.route.piped import TIMINGS, until

from inference_fleet.frontend.__main__ import main

if TYPE_CHECKING:
    from pathlib import Path

GOOD = {
    "BLACKSTART_DATABASE_URL": "postgresql://somebody:hunter22@127.0.0.1:1/none",
    "BLACKSTART_LISTEN": "127.0.0.1:0",
    "BLACKSTART_TIMINGS": "drill",
}


def environment(**changes: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("BLACKSTART_")}
    run = {name: os.environ[name] for name in ("BLACKSTART_RUN", "BLACKSTART_USER") if name in os.environ}
    return {**kept, **run, **GOOD, **changes}


def ended(tmp_path: Path, **changes: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "inference_fleet.frontend"],
        env=environment(BLACKSTART_DATA_DIR=str(tmp_path), **changes),
        capture_output=True,
        text=True,
        timeout=TIMINGS.start_s,
        check=False,
    )


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("BLACKSTART_DATABASE_URL", ""),
        ("BLACKSTART_DATABASE_URL", "mysql://somebody:hunter22@host/db"),
        ("BLACKSTART_DATABASE_URL", "postgresql://somebody:hunter22@host:70000/db"),
        ("BLACKSTART_LISTEN", "127.0.0.1:99999"),
        ("BLACKSTART_ADVERTISE_ADDRESS", "nowhere"),
        ("BLACKSTART_AUTH_REGISTRATION", "sometimes"),
        ("BLACKSTART_TIMINGS", "fast"),
        ("BLACKSTART_TIMING_HANDSHAKE_S", "soon"),
        ("BLACKSTART_TRUSTED_PROXIES", "10.0.0.0/99"),
        ("BLACKSTART_INSTANCE_ID", "a/b"),
    ],
)
def test_a_wrong_setting_is_exit_2_and_names_itself_and_the_remedy(
    tmp_path: Path, variable: str, value: str
) -> None:
    done = ended(tmp_path, **{variable: value})
    assert done.returncode == 2
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"blackstart: {variable}=")
    assert "; try: " in last
    assert "hunter22" not in done.stderr


def test_help_shows_the_settings_and_an_unknown_argument_is_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--help"])
    assert caught.value.code == 0
    assert "`TRUSTED_PROXIES`" in capsys.readouterr().out

    with pytest.raises(SystemExit) as caught:
        main(["--port", "80"])
    assert caught.value.code == 2
    assert capsys.readouterr().err == (
        "blackstart: argument=--port 80: no such argument; try: python -m inference_fleet.frontend --help\n"
    )


def test_a_port_that_is_taken_is_exit_2_before_anything_else_is_asked(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = ended(tmp_path, BLACKSTART_LISTEN=address)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith(f"blackstart: BLACKSTART_LISTEN={address}: ")


def test_a_replica_settles_its_memory_before_it_starts(tmp_path: Path) -> None:
    script = "import gc; from inference_fleet.frontend.__main__ import main; print(main([]), gc.get_freeze_count())"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = subprocess.run(
            [sys.executable, "-c", script],
            env=environment(BLACKSTART_DATA_DIR=str(tmp_path), BLACKSTART_LISTEN=address),
            capture_output=True,
            text=True,
            check=True,
        )
    code, frozen = done.stdout.split()
    assert code == "2", "the control: it had loaded everything by then"
    assert frozen != "0", "what a replica loads is collected, and what it frees given back"


def test_a_database_that_does_not_answer_is_named_without_its_password(tmp_path: Path) -> None:
    quick = {"BLACKSTART_TIMING_START_S": str(TIMINGS.reconnect_backoff_min_s)}
    done = ended(tmp_path, **quick)
    assert done.returncode == 1
    assert "127.0.0.1:1/none" in done.stderr.splitlines()[-1]
    assert "; try: " in done.stderr.splitlines()[-1]
    assert "hunter22" not in done.stderr


def test_a_wrong_database_password_is_exit_2_at_once(url: str, tmp_path: Path) -> None:
    right = urlsplit(url)
    address = f"{right.username}:hunter22@{right.hostname}:{right.port}"
    done = ended(tmp_path, BLACKSTART_DATABASE_URL=urlunsplit(right._replace(netloc=address)))
    assert done.returncode == 2, done.stderr
    (said,) = done.stderr.splitlines()
    assert said.startswith("blackstart: BLACKSTART_DATABASE_URL=***: ")
    assert "did not accept the user or the password; try: " in said
    assert "hunter22" not in said


def test_sigterm_ends_it_with_0_and_takes_its_row_along(url: str, tmp_path: Path) -> None:
    async def story() -> None:
        with socket.create_server(("127.0.0.1", 0)) as probe:
            address = f"127.0.0.1:{probe.getsockname()[1]}"
        log = (tmp_path / "log").open("w")
        process = subprocess.Popen(  # noqa: ASYNC220 -- the story's own loop waits for it by polling
            [sys.executable, "-m", "inference_fleet.frontend"],
            env=environment(
                BLACKSTART_DATABASE_URL=url,
                BLACKSTART_LISTEN=address,
                BLACKSTART_ADVERTISE_ADDRESS=address,
                BLACKSTART_DATA_DIR=str(tmp_path),
            ),
            stderr=log,
            stdout=log,
        )
        log.close()
        try:
            async with httpx2.AsyncClient(base_url=f"http://{address}", trust_env=False) as http:

                async def ready() -> bool:
                    assert process.poll() is None, (tmp_path / "log").read_text()
                    try:
                        return (await http.get("/readyz")).status_code == 200
                    except httpx2.TransportError:
                        return False

                await until(ready)
            process.send_signal(signal.SIGTERM)
            await until(lambda: process.poll() is not None)
            assert process.returncode == 0, (tmp_path / "log").read_text()
        finally:
            process.kill()
            process.wait()

    asyncio.run(story())


def test_sigterm_while_it_still_starts_is_an_ordinary_end(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "inference_fleet.frontend"],
        env=environment(BLACKSTART_DATA_DIR=str(tmp_path)),  # its database never comes
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        for line in process.stderr:
            if "the database is not there yet" in line:
                break
        process.send_signal(signal.SIGTERM)
        assert process.wait(TIMINGS.start_s) == 0
    finally:
        process.kill()
        process.communicate()
