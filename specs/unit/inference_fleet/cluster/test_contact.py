"""An observer that could not look for a while does not believe the first thing it sees."""

from __future__ import annotations

from inference_fleet.cluster import Contact


def test_an_observer_that_looks_often_believes_what_it_sees() -> None:
    contact = Contact(longest_gap_s=10, doubt_s=30)
    assert all(contact.made(float(now)) for now in range(0, 100, 10))


def test_after_a_gap_it_doubts_for_a_while_and_then_believes_again() -> None:
    contact = Contact(longest_gap_s=10, doubt_s=30)
    assert contact.made(0)
    assert [contact.made(now) for now in (11, 20, 30, 40, 41, 50)] == [False, False, False, False, True, True]


def test_a_second_gap_starts_the_doubt_again() -> None:
    contact = Contact(longest_gap_s=10, doubt_s=30)
    contact.made(0)
    assert not contact.made(20)
    assert not contact.made(45)
    assert [contact.made(now) for now in (55, 65, 74, 75)] == [False, False, False, True]
