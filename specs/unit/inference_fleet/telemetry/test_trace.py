"""Trace context as the specification has it."""

from __future__ import annotations

import pytest

from inference_fleet.telemetry.trace import TraceContext

_GOOD = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def test_a_callers_trace_goes_on_with_a_span_of_our_own() -> None:
    parsed = TraceContext.parse(_GOOD)
    assert parsed is not None
    assert parsed.traceparent == _GOOD

    here = TraceContext.continued(_GOOD)

    assert here.trace_id == parsed.trace_id
    assert here.span_id != parsed.span_id


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "garbage",
        _GOOD.upper(),
        _GOOD.replace("00-4bf", "ff-4bf"),
        _GOOD + "-more",
        "00-" + "0" * 32 + "-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-" + "0" * 16 + "-01",
        _GOOD + "x" * 600,
    ],
)
def test_a_header_that_breaks_the_specification_starts_a_trace_instead_of_failing(header: str | None) -> None:
    assert TraceContext.parse(header) is None
    assert TraceContext.parse(TraceContext.continued(header).traceparent) is not None


def test_a_later_version_may_say_more_behind_the_flags() -> None:
    parsed = TraceContext.parse(_GOOD.replace("00-4bf", "01-4bf") + "-more")
    assert parsed is not None
    assert parsed.traceparent == _GOOD
