"""Log lines: one JSON object each, with ids, without secrets."""

from __future__ import annotations

import io
import json
import logging
from typing import TYPE_CHECKING, Any

import pytest

from inference_fleet.telemetry.logs import JsonFormatter, Redactor, bound, configure_logs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def line_of() -> Iterator[Callable[..., dict[str, Any]]]:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter(instance="replica-1", redact=Redactor(["s3cret-token"])))
    logger = logging.getLogger("spec")
    logger.addHandler(handler)

    def write(message: str, *arguments: object, exc_info: bool = False) -> dict[str, Any]:
        stream.truncate(0)
        stream.seek(0)
        logger.warning(message, *arguments, exc_info=exc_info)
        (line,) = stream.getvalue().splitlines()
        decoded: dict[str, Any] = json.loads(line)
        return decoded

    yield write
    logger.removeHandler(handler)


def test_a_line_carries_the_ids_bound_around_the_work_and_loses_them_afterwards(
    line_of: Callable[..., dict[str, Any]],
) -> None:
    with bound(node="n-1", epoch=7), bound(trace="abc"):
        inside = line_of("relayed %d bytes", 5)
    outside = line_of("idle")

    assert inside["message"] == "relayed 5 bytes"
    assert (inside["node"], inside["epoch"], inside["trace"]) == ("n-1", 7, "abc")
    assert inside["instance"] == "replica-1"
    assert "node" not in outside


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("the token s3cret-token was shown", "s3cret-token"),
        ("Authorization: Bearer bsk_abcdef", "bsk_abcdef"),
        ("cookie session=0123456789abcdef; path=/", "0123456789abcdef"),
        ('{"password": "hunter22"}', "hunter22"),
        ("postgresql://fleet:hunter22@db:5432/fleet is down", "hunter22"),
    ],
)
def test_no_secret_reaches_a_line(line_of: Callable[..., dict[str, Any]], text: str, secret: str) -> None:
    line = line_of("%s", text)
    assert secret not in json.dumps(line)
    assert "***" in line["message"]


def test_a_traceback_is_in_the_line_without_its_secrets(line_of: Callable[..., dict[str, Any]]) -> None:
    try:
        int("password=hunter22")
    except ValueError:
        line = line_of("failed", exc_info=True)
    assert "ValueError" in line["error"]
    assert "hunter22" not in line["error"]


def test_a_record_that_cannot_be_formatted_is_still_a_line() -> None:
    record = logging.LogRecord("spec", logging.INFO, __file__, 1, "%d things", ("many",), None)
    line = JsonFormatter(instance="replica-1", redact=Redactor()).format(record)
    assert "do not fit" in json.loads(line)["message"]


def test_configuring_makes_json_the_only_output() -> None:
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    stream = io.StringIO()
    try:
        configure_logs(instance="replica-2", stream=stream)
        logging.getLogger("anything").info("hello")
        handlers = root.handlers[:]
    finally:
        root.handlers[:] = before
        root.setLevel(level)
    assert len(handlers) == 1
    assert json.loads(stream.getvalue())["message"] == "hello"
