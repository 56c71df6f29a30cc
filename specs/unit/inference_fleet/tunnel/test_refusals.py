from __future__ import annotations

import pytest

from inference_fleet.tunnel import REFUSALS, Refusal, StreamRefused, is_evidence, refusal_of

LITERALS = {
    Refusal.TAG_UNKNOWN: ("tag-unknown", True),
    Refusal.UNAVAILABLE: ("unavailable", True),
    Refusal.INVALID: ("invalid", True),
    Refusal.NOT_SERVED: ("not-served", False),
    Refusal.STALE_EPOCH: ("stale-epoch", False),
    Refusal.NOT_OWNER: ("not-owner", False),
}


@pytest.mark.holds("B-38", "B-40", "T-36")
def test_wire_codes_and_their_evidence_are_pinned_to_literals() -> None:
    assert {refusal: (rule.code, rule.evidence) for refusal, rule in REFUSALS.items()} == LITERALS


@pytest.mark.holds("B-39")
def test_writer_and_reader_share_one_table_that_covers_the_whole_vocabulary() -> None:
    assert set(REFUSALS) == set(Refusal)
    for refusal, rule in REFUSALS.items():
        assert refusal.value == rule.code
        assert refusal_of(rule.code) is refusal
        assert is_evidence(rule.code) is rule.evidence
        refused = StreamRefused(rule.code, "why")
        assert (refused.refusal, refused.evidence) == (refusal, rule.evidence)


@pytest.mark.holds("B-41")
@pytest.mark.parametrize("code", ["", "Unavailable", "unavailable ", "gone-fishing", "invalid\x00"])
def test_an_unknown_code_is_no_evidence(code: str) -> None:
    refused = StreamRefused(code, "from a newer worker")
    assert refused.refusal is None
    assert not refused.evidence
    assert refused.code == code
