"""What a process of the fleet would have written while a story ran, as its collectors read it."""

from __future__ import annotations

import contextlib
import io
import json
import logging
from typing import TYPE_CHECKING, Any

from inference_fleet.telemetry.logs import JsonFormatter, Redactor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextlib.contextmanager
def lines_of(name: str) -> Iterator[Callable[[], list[dict[str, Any]]]]:
    """The JSON lines of one logger so far, whenever it is asked."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter(instance="spec", redact=Redactor()))
    logger = logging.getLogger(name)
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield lambda: [json.loads(line) for line in stream.getvalue().splitlines()]
    finally:
        logger.setLevel(level)
        logger.removeHandler(handler)
