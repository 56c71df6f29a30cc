from __future__ import annotations

import pytest

from inference_fleet.settings import Timings
from inference_fleet.tunnel.keepalive import Keepalive, Pulse

_T = Timings.drill()
INTERVAL, TIMEOUT = _T.keepalive_interval_s, _T.keepalive_timeout_s


def _keepalive() -> Keepalive:
    return Keepalive(interval_s=INTERVAL, timeout_s=TIMEOUT, now=0.0)


@pytest.mark.holds("T-8")
def test_a_silent_link_is_pinged_after_the_interval_and_dead_after_the_timeout() -> None:
    keepalive = _keepalive()
    assert keepalive.pulse(0.0) == Pulse(ping=False, dead=False, wait_s=INTERVAL)
    assert keepalive.pulse(INTERVAL) == Pulse(ping=True, dead=False, wait_s=min(TIMEOUT, INTERVAL))
    assert not keepalive.pulse(INTERVAL + TIMEOUT * 0.999).dead
    assert keepalive.pulse(INTERVAL + TIMEOUT).dead


def test_any_byte_after_the_ping_is_a_sign_of_life() -> None:
    keepalive = _keepalive()
    keepalive.pulse(0.0)
    keepalive.pulse(INTERVAL)
    late = INTERVAL + TIMEOUT * 0.9
    keepalive.heard(late)
    pulse = keepalive.pulse(INTERVAL + TIMEOUT)
    assert not pulse.dead
    assert pulse.wait_s == pytest.approx(late - TIMEOUT)
    assert keepalive.pulse(late + INTERVAL).ping, "and the next silence is asked about again"


@pytest.mark.holds("T-8")
@pytest.mark.parametrize("timings", [Timings.drill(), Timings.production()], ids=["drill", "production"])
@pytest.mark.parametrize("share", [0.0, 0.01, 0.3, 0.6, 0.99, 1.2, 1.7])
def test_a_dead_link_is_noticed_in_time_whenever_its_last_byte_came(timings: Timings, share: float) -> None:
    """Also when that byte answered a ping, and the look that was to judge the answer is far away."""
    interval, timeout = timings.keepalive_interval_s, timings.keepalive_timeout_s
    keepalive = Keepalive(interval_s=interval, timeout_s=timeout, now=0.0)
    last, now, heard = interval + share * timeout, 0.0, False
    while not (pulse := keepalive.pulse(now)).dead:
        now += pulse.wait_s
        if not heard and now >= last:
            keepalive.heard(last)
            heard = True
    assert heard or share >= 1
    assert now - (last if heard else 0.0) <= interval + timeout + 1e-9


def test_a_busy_link_is_never_pinged() -> None:
    keepalive = _keepalive()
    for i in range(100):
        now = i * INTERVAL / 2
        keepalive.heard(now)
        pulse = keepalive.pulse(now)
        assert not pulse.ping
        assert pulse.wait_s == pytest.approx(INTERVAL)


def test_one_ping_is_outstanding_at_a_time() -> None:
    keepalive = _keepalive()
    keepalive.pulse(0.0)
    pings = [keepalive.pulse(INTERVAL + i * TIMEOUT / 10).ping for i in range(10)]
    assert pings == [True] + [False] * 9


def test_an_observer_that_comes_late_looks_again_before_it_judges() -> None:
    keepalive = _keepalive()
    keepalive.pulse(0.0)
    keepalive.pulse(INTERVAL)
    awake = INTERVAL + 10 * TIMEOUT
    second_look = keepalive.pulse(awake)
    assert not second_look.dead, "it slept itself; what came in meanwhile is not read yet"
    assert keepalive.pulse(awake + second_look.wait_s).dead, "nothing had come in"
