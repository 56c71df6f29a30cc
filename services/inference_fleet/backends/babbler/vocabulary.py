"""Text as numbers and back without loss: whole words where the corpus repeats them, letters where it does not."""

from __future__ import annotations

import re
from collections import Counter
from typing import Self

UNKNOWN = 0
_PIECES = re.compile(r" ?[A-Za-z]+(?:'[a-z]+)?| ?[0-9]+|\n\n|.", re.DOTALL)


class Vocabulary:
    """The tokens of one model; number 0 stands for any character the corpus never showed.

    | piece of text           | becomes                                   |
    |-------------------------|-------------------------------------------|
    | a word seen twice       | one token, its leading blank included     |
    | any other word          | one token a character                     |
    | a character never seen  | `UNKNOWN`, which is read but never spoken |
    """

    def __init__(self, tokens: tuple[str, ...]) -> None:
        """`tokens[0]` is the empty text of `UNKNOWN`."""
        assert tokens
        assert tokens[UNKNOWN] == ""
        self.tokens = tokens
        self._number = {token: number for number, token in enumerate(tokens) if number != UNKNOWN}

    @classmethod
    def learn(cls, text: str, *, at_least: int = 2) -> Self:
        """The vocabulary of a text: its characters, and its pieces that occur `at_least` times, commonest first."""
        pieces = Counter(_PIECES.findall(text))
        words = [piece for piece, count in pieces.items() if count >= at_least and len(piece) > 1]
        words.sort(key=lambda piece: (-pieces[piece], piece))
        return cls(("", *sorted(set(text)), *words))

    def __len__(self) -> int:
        return len(self.tokens)

    def encode(self, text: str) -> list[int]:
        """The numbers of a text; `decode` gives it back, but for characters the corpus never showed."""
        number = self._number
        numbers: list[int] = []
        for piece in _PIECES.findall(text):
            known = number.get(piece)
            if known is not None:
                numbers.append(known)
            else:
                numbers.extend(number.get(character, UNKNOWN) for character in piece)
        return numbers

    def decode(self, numbers: list[int]) -> str:
        """The text of some numbers."""
        return "".join(self.tokens[number] for number in numbers)
