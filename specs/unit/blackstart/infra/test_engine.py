"""An engine, found or not, without one being needed."""

from __future__ import annotations

import json
import socket
import time
from typing import TYPE_CHECKING

import pytest

from blackstart.infra.engine import (
    ANSWER_S,
    HOST_LABEL,
    RUN_LABEL,
    Engine,
    EngineError,
    find_engine,
    find_wanted_engine,
    host_identity,
    main,
    remove_leftovers,
)

from .played_engine import fake

if TYPE_CHECKING:
    from pathlib import Path

DEAD_RUN = "20200101-000000-dead0000"


def test_an_engine_that_answers_is_named_with_its_version(tmp_path: Path) -> None:
    with fake(tmp_path, {"GET /version": (200, b'{"Version":"20.10"}')}) as engine:
        assert find_engine(engine.address) == Engine(engine.address, "20.10")


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("unix:///absent/docker.sock", "does not exist"),
        ("ftp://somewhere", "neither unix:// nor tcp://"),
        ("tcp://127.0.0.1:1", "refused"),
    ],
)
def test_an_engine_that_is_not_there_is_a_reason(address: str, reason: str) -> None:
    found = find_engine(address)
    assert isinstance(found, str)
    assert found.startswith("no container engine: ")
    assert reason in found


def test_an_engine_that_accepts_and_never_answers_is_absent_after_half_a_second(tmp_path: Path) -> None:
    path = tmp_path / "silent.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        began = time.monotonic()
        found = find_engine(f"unix://{path}")
        took_s = time.monotonic() - began
    assert isinstance(found, str)
    assert ANSWER_S <= took_s < 20 * ANSWER_S


def test_an_engine_nobody_can_do_without_may_be_silent_at_first_and_that_is_remarked(tmp_path: Path) -> None:
    told: list[str] = []
    answers = {"GET /version": (200, b'{"Version":"20.10"}')}
    with fake(tmp_path, answers, deaf=2) as engine:
        assert isinstance(find_engine(engine.address), str), "the control: it is silent"
        assert find_wanted_engine(engine.address, remark=told.append) == Engine(engine.address, "20.10")
    [remark] = told
    assert "timed out; asked again: engine 20.10 answered after" in remark


def test_an_engine_that_refuses_is_not_asked_again_even_where_it_is_wanted() -> None:
    told: list[str] = []
    found = find_wanted_engine("tcp://127.0.0.1:1", remark=told.append)
    assert isinstance(found, str)
    assert "refused" in found
    assert told == []


def test_an_answer_that_is_no_engines_is_a_reason(tmp_path: Path) -> None:
    with fake(tmp_path, {"GET /version": (200, b"<html>")}) as engine:
        assert isinstance(find_engine(engine.address), str)


def test_a_refusal_carries_the_request_and_the_engines_words(tmp_path: Path) -> None:
    with fake(tmp_path, {"DELETE /containers/x": (500, b'{"message":"driver failed"}')}) as engine:
        with pytest.raises(EngineError, match="DELETE /containers/x: 500 driver failed"):
            Engine(engine.address, "").remove("x")
        assert Engine(engine.address, "").remove("gone") is False, "one that is gone is no error"
        assert main(["--address", engine.address, "remove", "gone"]) == 0
        assert main(["--address", engine.address, "remove", "x"]) == 1


def test_a_containers_log_is_kept_before_it_is_removed_without_the_engines_frames(tmp_path: Path) -> None:
    framed = b"\x01\0\0\0\0\0\0\x06hello\n\x02\0\0\0\0\0\0\x04bad\n"
    answers = {"GET /containers/x/logs": (200, framed), "DELETE /containers/x": (204, b"")}
    with fake(tmp_path, answers) as engine:
        assert Engine(engine.address, "").remove("x", log=tmp_path / "x.log")
        assert engine.asked == ["GET /containers/x/logs", "DELETE /containers/x"]
    assert (tmp_path / "x.log").read_bytes() == b"hello\nbad\n"


def test_only_containers_of_dead_runs_of_this_host_or_very_old_ones_are_removed(tmp_path: Path) -> None:
    now = 1_000_000.0

    def container(name: str, host: str, age_s: float) -> dict[str, object]:
        labels = {RUN_LABEL: DEAD_RUN, HOST_LABEL: host}
        return {"Names": [f"/{name}"], "Labels": labels, "Created": now - age_s}

    listed = [
        container("dead-here", host_identity(), 1),
        container("elsewhere", "other-host", 1),
        container("ancient", "other-host", 100),
    ]
    answers = {"GET /containers/json": (200, json.dumps(listed).encode())}
    answers |= {f"DELETE /containers/{name}": (204, b"") for name in ("dead-here", "elsewhere", "ancient")}
    with fake(tmp_path, answers) as engine:
        removed = remove_leftovers(Engine(engine.address, ""), older_than_s=50, now=now)
    assert removed == ("dead-here", "ancient")
