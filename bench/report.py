"""The same sheet for people and for machines."""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING, Any

from bench.floors import BY_FIGURE
from bench.sheet import CONTROLS, UNITS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bench.floors import Bound, Judgement
    from bench.sheet import Sheet
    from bench.summary import Summary

_PROCESSES = ("backend", "worker", "owner", "relay", "hop-0", "hop-1", "client")


def rendered(sheet: Sheet, *, settings: Mapping[str, object], judgements: Sequence[Judgement]) -> str:
    """What was set, a table a subject, CPU seconds a GB, then the floors."""
    lines = [f"{name}: {value}" for name, value in settings.items()]
    for subject in sheet.subjects:
        lines += ["", _row(subject, "median", "low", "high", "spread", "floor", "goal")]
        lines += [
            _figure(name, summary, None if subject in CONTROLS else BY_FIGURE.get(name))
            for name, summary in sheet.summaries(subject).items()
        ]
    if sheet.cpu:
        lines += ["", *_cpu_table(sheet)]
    if judgements:
        missed = sum(not judgement.held for judgement in judgements)
        lines += ["", *(str(judgement) for judgement in judgements)]
        lines.append(f"floors: {len(judgements) - missed} held, {missed} missed")
    return "\n".join(lines)


def as_json(
    sheet: Sheet, *, settings: Mapping[str, object], judgements: Sequence[Judgement]
) -> dict[str, Any]:
    """One object: `settings`, `figures`, `cpu_s_per_gb`, `floors`, `held`."""
    return {
        "settings": dict(settings),
        "figures": {
            subject: {
                figure: {
                    "median": summary.median,
                    "low": summary.low,
                    "high": summary.high,
                    "unit": UNITS.get(figure, "ratio"),
                    "rounds": sheet.figures(subject)[figure],
                }
                for figure, summary in sheet.summaries(subject).items()
            }
            for subject in sheet.subjects
        },
        "cpu_s_per_gb": {
            subject: {
                transfer: {process: statistics.median(values) for process, values in by_process.items()}
                for transfer, by_process in transfers.items()
            }
            for subject, transfers in sheet.cpu.items()
        },
        "floors": [
            {
                "subject": judgement.subject,
                "figure": judgement.bound.figure,
                "value": None if math.isnan(judgement.value) else judgement.value,
                "floor": judgement.bound.floor,
                "goal": judgement.bound.goal,
                "better": judgement.bound.better.name.lower(),
                "held": judgement.held,
                "goal_reached": judgement.bound.reaches(judgement.value),
            }
            for judgement in judgements
        ],
        "held": all(judgement.held for judgement in judgements),
    }


def _figure(name: str, summary: Summary, bound: Bound | None) -> str:
    return _row(
        f"  {name}{' ' + UNITS[name] if name in UNITS else ''}",
        f"{summary.median:.4g}",
        f"{summary.low:.4g}",
        f"{summary.high:.4g}",
        f"{summary.spread:.0%}",
        "" if bound is None else f"{bound.floor:g}",
        "" if bound is None else f"{bound.goal:g}",
    )


def _row(name: str, *cells: str) -> str:
    return f"{name:<34}" + "".join(f"{cell:>10}" for cell in cells).rstrip()


def _cpu_table(sheet: Sheet) -> list[str]:
    lines = [_row("CPU seconds a GB", *_PROCESSES, "sum")]
    for subject in sheet.subjects:
        for transfer, by_process in sheet.cpu.get(subject, {}).items():
            medians = {process: statistics.median(values) for process, values in by_process.items()}
            cells = [f"{medians[name]:.3f}" if name in medians else "" for name in _PROCESSES]
            lines.append(_row(f"  {subject} {transfer}", *cells, f"{sum(medians.values()):.3f}"))
    return lines
