"""What holds something open lets go of it at the end of its block."""

from __future__ import annotations

import pytest

from blackstart.core.closing import Closing


class _Open(Closing):
    def __init__(self) -> None:
        self.closed = 0

    def close(self) -> None:
        self.closed += 1


def test_it_is_itself_inside_the_block_and_closed_behind_it() -> None:
    door = _Open()
    with door as inside:
        assert inside is door
        assert door.closed == 0
    assert door.closed == 1


def test_an_error_of_the_block_is_raised_and_closes_it_all_the_same() -> None:
    door = _Open()
    with pytest.raises(ZeroDivisionError), door:
        raise ZeroDivisionError
    assert door.closed == 1, "it stayed open after an error"
