"""A byte out of place is seen, whole or by the ends of its piece."""

from __future__ import annotations

import hashlib

from bench.content import CHUNK, Content

TEXT = Content()


def test_the_content_is_the_same_in_every_process_and_repeats_at_no_power_of_two() -> None:
    assert bytes(Content().at(0, 64)) == bytes(TEXT.at(0, 64))
    for power in range(10, 30):
        assert TEXT.at(0, 64) != TEXT.at(1 << power, 64), (
            f"a piece from {1 << power} on would pass for the first"
        )


def test_a_piece_may_begin_anywhere() -> None:
    whole = b"".join(bytes(TEXT.at(offset, CHUNK)) for offset in range(0, 8 * CHUNK, CHUNK))
    for offset in (0, 1, CHUNK - 1, 4 * CHUNK + 17, 6 * CHUNK):
        assert bytes(TEXT.at(offset, 1000)) == whole[offset : offset + 1000]


def test_the_digest_is_that_of_what_is_sent() -> None:
    size = 2 * CHUNK + 5
    sent = b"".join(bytes(TEXT.at(offset, min(CHUNK, size - offset))) for offset in range(0, size, CHUNK))
    assert TEXT.digest(size) == hashlib.sha256(sent).digest()


def test_a_piece_in_its_place_agrees_and_one_moved_by_a_byte_does_not() -> None:
    for length in (1, 2, 15, 16, 17, 1000, CHUNK):
        piece = memoryview(bytes(TEXT.at(5000, length)))
        assert TEXT.agrees(5000, piece), length
        if length > 1:
            assert not TEXT.agrees(5001, piece), length


def test_a_wrong_end_is_seen_at_either_end() -> None:
    piece = bytearray(TEXT.at(5000, 1000))
    piece[-1] ^= 1
    assert not TEXT.agrees(5000, memoryview(piece)), "the last byte differs"
    piece[-1] ^= 1
    piece[0] ^= 1
    assert not TEXT.agrees(5000, memoryview(piece)), "the first byte differs"
