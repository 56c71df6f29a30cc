"""Nothing is started twice, and a crash loop slows down."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference_fleet.settings import Timings
from inference_fleet.worker.lifecycle import STEPS, IllegalStep, Ladder, Phase, Step, after

TIMINGS = Timings.production()
LIVE = {Phase.STARTING, Phase.READY, Phase.ENDING, Phase.STOPPING}


@pytest.mark.parametrize("phase", sorted(LIVE))
def test_a_model_with_a_live_process_is_not_started_again(phase: Phase) -> None:
    with pytest.raises(IllegalStep, match=f"start in phase {phase}"):
        after(phase, Step.START)


@given(st.lists(st.sampled_from(list(Step)), max_size=30))
def test_starts_and_exits_alternate_on_every_path(steps: list[Step]) -> None:
    phase, live = Phase.IDLE, 0
    for step in steps:
        if (phase, step) not in STEPS:
            continue
        phase = after(phase, step)
        live += (step is Step.START) - (step is Step.EXITS)
        assert live == (phase in LIVE)


def test_every_phase_can_be_stopped_or_is_on_its_way() -> None:
    for phase in Phase:
        assert (phase, Step.STOP) in STEPS or phase in {Phase.STOPPING, Phase.STOPPED}


def test_pauses_double_up_to_the_cap() -> None:
    ladder, pauses = Ladder(), []
    for _ in range(8):
        ladder = ladder.fallen(ready_for_s=0.0, timings=TIMINGS)
        pauses.append(ladder.pause_s(timings=TIMINGS, draw=0.0))

    low, cap = TIMINGS.backend_restart_min_s, TIMINGS.backend_restart_max_s
    assert pauses[:3] == [low, 2 * low, 4 * low]
    assert pauses[-1] == cap


def test_a_process_that_lasted_starts_again_from_the_bottom() -> None:
    high = Ladder(rungs=7)

    lasted = high.fallen(ready_for_s=TIMINGS.backend_restart_max_s + 1, timings=TIMINGS)
    did_not = high.fallen(ready_for_s=TIMINGS.backend_restart_max_s, timings=TIMINGS)

    assert lasted.rungs == 1
    assert did_not.rungs == 8


@given(st.integers(1, 10_000), st.floats(0, 1))
def test_jitter_takes_away_up_to_half_and_never_all(rungs: int, draw: float) -> None:
    pause = Ladder(rungs).pause_s(timings=TIMINGS, draw=draw)

    assert TIMINGS.backend_restart_min_s / 2 <= pause <= TIMINGS.backend_restart_max_s
