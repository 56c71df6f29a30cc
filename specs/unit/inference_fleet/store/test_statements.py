"""SQL put together from named fragments."""

from __future__ import annotations

import pytest

from inference_fleet.store import statement


def test_fragments_take_their_places_and_parameters_stay() -> None:
    assert statement("SELECT $a WHERE x = %(x)s", a="1") == "SELECT 1 WHERE x = %(x)s"


def test_a_missing_fragment_is_an_error_at_once() -> None:
    with pytest.raises(KeyError, match="rule"):
        statement("SELECT $rule")
