"""Text goes in and comes out the same."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from inference_fleet.backends.babbler.model import corpus
from inference_fleet.backends.babbler.vocabulary import UNKNOWN, Vocabulary

SHIPPED = Vocabulary.learn(corpus())


def test_the_shipped_text_survives_encoding_and_decoding() -> None:
    numbers = SHIPPED.encode(corpus())

    assert SHIPPED.decode(numbers) == corpus()
    assert UNKNOWN not in numbers


@given(st.text(alphabet=sorted(set(corpus())), max_size=200))
def test_any_text_of_known_characters_survives(text: str) -> None:
    assert SHIPPED.decode(SHIPPED.encode(text)) == text


def test_a_character_the_text_never_showed_is_read_as_unknown() -> None:
    assert SHIPPED.encode("\u4e2d") == [UNKNOWN]
    assert SHIPPED.encode("a") != [UNKNOWN]


def test_a_word_seen_twice_is_one_token_and_a_word_seen_once_is_letters() -> None:
    vocabulary = Vocabulary.learn("a cat, a cat, a dog")

    assert len(vocabulary.encode(" cat")) == 1
    assert len(vocabulary.encode(" dog")) == len(" dog")
