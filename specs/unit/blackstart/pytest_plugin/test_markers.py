"""A marker with a typo must not be a spec that quietly holds nothing."""

from __future__ import annotations

import pytest

from blackstart.pytest_plugin.markers import objection_to


@pytest.mark.parametrize(
    ("mark", "told"),
    [
        (pytest.mark.holds("B-0"), "'B-0' is no inventory id; try: 'B-12'"),
        (pytest.mark.holds("b-12"), "is no inventory id"),
        (pytest.mark.holds("X-1"), "is no inventory id"),
        (pytest.mark.holds(12), "is no inventory id"),
        (pytest.mark.holds("B-1", "B-2", "B-3", "B-4", "B-5"), "5 ids, one to 4 are allowed"),
        (pytest.mark.holds("B-1", "B-1"), "named twice"),
        (pytest.mark.holds(id="B-1"), "takes ids only"),
        (pytest.mark.needs("docker"), "docker is no capability; try: browser, container"),
        (pytest.mark.needs(what="container"), "takes names of capabilities"),
        (pytest.mark.cluster(2), "takes named arguments only"),
        (pytest.mark.cluster(postgres="embedded"), "postgres='embedded': only a container can be had"),
    ],
)
def test_a_marker_that_cannot_be_meant_is_objected_to(mark: pytest.MarkDecorator, told: str) -> None:
    objection = objection_to(mark.mark)
    assert objection is not None
    assert told in objection


@pytest.mark.parametrize(
    "mark",
    [
        pytest.mark.holds("B-1", "H-104", "T-81", "B-262"),
        pytest.mark.needs("container", "strace"),
        pytest.mark.cluster(frontends=2, workers=1),
        pytest.mark.cluster(postgres="container"),
        pytest.mark.skip(reason="somebody else's"),
    ],
)
def test_a_marker_that_can_be_meant_is_let_through(mark: pytest.MarkDecorator) -> None:
    assert objection_to(mark.mark) is None
