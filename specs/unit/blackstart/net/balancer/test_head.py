"""Heads are read strictly and rewritten little."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blackstart.net.balancer.head import LARGEST_HEAD, BadHead, parse_head, split_head

UPGRADE = b"GET /api/node/n1/tunnel?x=1 HTTP/1.1\r\nHost: b\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket"
PLAIN = (
    b"POST /v1/chat HTTP/1.1\r\nHost: b\r\nConnection: keep-alive\r\nX-Forwarded-For: 10.0.0.9\r\nX-A: \t1 "
)


def test_an_ordinary_request_is_marked_to_end_with_its_answer_so_that_the_next_head_is_seen_too() -> None:
    lines = parse_head(PLAIN).rewritten(client="127.0.0.1").split(b"\r\n")
    assert lines[0] == b"POST /v1/chat HTTP/1.1"
    assert b"Connection: close" in lines
    assert b"Connection: keep-alive" not in lines, "two Connection fields"
    assert lines[-2:] == [b"", b""]


def test_an_upgrade_keeps_its_connection_field_and_is_not_marked_to_end() -> None:
    head = parse_head(UPGRADE)
    assert head.upgrade
    assert b"Connection: keep-alive, Upgrade" in head.rewritten(client="127.0.0.1")
    assert b"close" not in head.rewritten(client="127.0.0.1")
    assert not parse_head(PLAIN).upgrade, "control: an ordinary request is no upgrade"


def test_the_clients_address_is_added_behind_those_that_are_there() -> None:
    assert b"X-Forwarded-For: 10.0.0.9, 127.0.0.7\r\n" in parse_head(PLAIN).rewritten(client="127.0.0.7")
    assert b"X-Forwarded-For: 127.0.0.7\r\n" in parse_head(UPGRADE).rewritten(client="127.0.0.7")


@pytest.mark.parametrize(
    ("target", "path"),
    [
        (b"/a/b?c=/d", "/a/b"),
        (b"http://host:80/a/b?c", "/a/b"),
        (b"http://host", "/"),
        (b"*", "*"),
    ],
)
def test_rules_see_the_path_without_query_and_host(target: bytes, path: str) -> None:
    assert parse_head(b"GET " + target + b" HTTP/1.1").path == path


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"PRI * HTTP/2.0",
        b"GET /\x00 HTTP/1.1",
        b"GET / HTTP/1.1\r\nno colon here",
        b"GET / HTTP/1.1\r\nHost: b\r\n folded: x",
        b"GET / HTTP/1.1\r\nHost : b",
        b"GET / HTTP/1.1\r\nHost: a\nX: b",
        b"get / HTTP/1.1",
        b"GET  / HTTP/1.1",
    ],
)
def test_a_loose_head_is_refused_by_name(head: bytes) -> None:
    if head == b"GET /\x00 HTTP/1.1":
        assert parse_head(head).path == "/\x00", "a byte the path may hold is the backend's to judge"
        return
    with pytest.raises(BadHead) as caught:
        parse_head(head)
    assert caught.value.status == 400


def test_a_head_at_the_bound_passes_and_one_past_it_is_refused_before_its_end_is_seen() -> None:
    fits = b"GET / HTTP/1.1\r\nX: "
    fits += b"a" * (LARGEST_HEAD - len(fits) - 4) + b"\r\n\r\n"
    assert split_head(fits) == (fits[:-4], b"")
    with pytest.raises(BadHead) as caught:
        split_head(b"GET / HTTP/1.1\r\nX: " + b"a" * LARGEST_HEAD)
    assert caught.value.status == 431


@given(st.integers(min_value=0, max_value=len(PLAIN) + 3), st.binary(max_size=64))
def test_a_head_may_come_in_any_pieces_and_what_follows_is_left_alone(cut: int, body: bytes) -> None:
    whole = PLAIN + b"\r\n\r\n"
    assert split_head(whole[:cut]) is None
    assert split_head(whole + body) == (PLAIN, body)


@given(st.binary(max_size=200))
def test_no_bytes_do_anything_but_parse_or_be_refused(head: bytes) -> None:
    with suppress(BadHead):
        assert parse_head(head).rewritten(client="127.0.0.1").endswith(b"\r\n\r\n")
