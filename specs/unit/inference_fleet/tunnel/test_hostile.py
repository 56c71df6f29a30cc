"""What a hostile end may try on a tunnel: each attempt has its name and its end, costs little, and harms no other session."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import pytest

from inference_fleet.tunnel import Limits
from inference_fleet.tunnel.websocket import Opcode, frame_head
from inference_fleet.tunnel.yamux.wire import (
    ACK,
    DATA,
    FIN,
    GO_AWAY,
    INITIAL_WINDOW,
    LARGEST_U32,
    PING,
    RST,
    SYN,
    WINDOW,
    pack,
)

from .hostile import FAIR_RATIO, GROWTH_BYTES, PATIENT, Attack, Attacker, siege
from .linked import offering
from .piped import piped

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from inference_fleet.tunnel.yamux.events import Event

FEW: Final = 64
"""A budget of the specs: passed within one read, so that no clock has a say."""
MANY: Final = 64 * 1024
LEAPS: Final = 16 * 1024
KEY: Final = bytes(4)
TIGHT: Final = Limits(
    open_streams=FEW, resets_per_second=FEW, pings_per_second=FEW, empty_frames_per_second=FEW
)
QUESTION: Final = b"\0\0\0\x01?"


def syn(number: int) -> bytes:
    """The opening of the attacker's stream of this number."""
    return pack(WINDOW, SYN, 2 * number + 1, 0)


def rst(number: int) -> bytes:
    return pack(WINDOW, RST, 2 * number + 1, 0)


def data(payload: bytes, *, flags: int = 0) -> bytes:
    """On the first stream."""
    return pack(DATA, flags, 1, len(payload)) + payload


def flood(frame: Callable[[int], bytes], *, first: bytes = b"") -> Callable[[Attacker], None]:
    """Twice a budget's frames at once, again and again, until hung up on."""

    def says(attacker: Attacker) -> None:
        attacker.say(first + b"".join(frame(number) for number in range(2 * FEW)))
        for start in range(2 * FEW, 200 * FEW, 2 * FEW):
            attacker.say(*(frame(number) for number in range(start, start + 2 * FEW)))

    return says


def flood_of_websocket(opcode: Opcode, *, final: bool = True) -> Callable[[Attacker], None]:
    """The same one layer below."""
    head = bytearray(frame_head(opcode, 0, KEY))
    head[0] = (0x80 if final else 0) | opcode

    def says(attacker: Attacker) -> None:
        if not final:
            attacker.put(b"\x02\x81" + KEY + b"\0")
        for _ in range(4):
            attacker.put(bytes(head) * (FEW + 1))

    return says


def pings_and_reads(attacker: Attacker) -> None:
    for number in range(2 * FEW):
        attacker.say(*(pack(PING, SYN, 0, number) for _ in range(2)))
    while attacker.hear():
        pass


def never_reads(attacker: Attacker) -> None:
    many = pack(PING, SYN, 0, 0) * 4096
    for _ in range(100):
        attacker.say(many)


def one_byte_websocket_frames(attacker: Attacker) -> None:
    attacker.say(syn(0) + data(QUESTION) + pack(DATA, 0, 1, MANY))
    one = frame_head(Opcode.BINARY, 1, KEY) + b"x"
    for _ in range(MANY // 1024):
        attacker.put(one * 1024)


def one_byte_yamux_frames(attacker: Attacker) -> None:
    attacker.say(syn(0) + data(QUESTION))
    for _ in range(MANY // 1024):
        attacker.say(data(b"x") * 1024)


def byte_by_byte(attacker: Attacker) -> None:
    said = syn(0) + data(QUESTION) + data(b"", flags=FIN)
    for at in range(len(said)):
        for byte in frame_head(Opcode.BINARY, 1, KEY) + said[at : at + 1]:
            attacker.put(bytes((byte,)))
    attacker.hear_until(lambda heard: QUESTION in heard)


def unfinished_requests(attacker: Attacker) -> None:
    attacker.say(*(syn(number) + pack(DATA, 0, 2 * number + 1, 2) + b"\0\0" for number in range(FEW)))
    attacker.hear_until(lambda heard: heard.count(b"not-served") == FEW)


def leaps_of_ids(attacker: Attacker) -> None:
    """Each skips more ids than are remembered."""
    leap = Limits().remembered_ids + 1
    for start in range(0, LEAPS, 256):
        attacker.say(*(syn(number * leap) for number in range(start, start + 256)))


def opens_without_asking(attacker: Attacker) -> None:
    attacker.say(*(syn(number) for number in range(2 * FEW)))
    attacker.hear_until(lambda heard: all(rst(number) in heard for number in range(FEW, 2 * FEW)))
    assert rst(0) not in attacker.heard, "what is within the limit was reset too"


def goes_and_opens(attacker: Attacker) -> None:
    attacker.say(syn(0), pack(GO_AWAY, 0, 0, 0), *(syn(number) for number in range(1, FEW)))
    attacker.hear_until(lambda heard: all(rst(number) in heard for number in range(1, FEW)))
    attacker.say(data(b"", flags=FIN))
    while attacker.hear():
        pass


def breach(name: str, says: Callable[[Attacker], None], *, limits: Limits = TIGHT) -> Attack:
    """An attack that has a name in the table of breaches."""
    return Attack(says=says, ends=f"protocol error: {name}", close=(1002, name), limits=limits)


def once(*said: bytes) -> Callable[[Attacker], None]:
    """Everything in one message."""
    return lambda attacker: attacker.say(*said)


YAMUX = {
    "rapid reset": breach("reset-flood", flood(lambda number: syn(number) + rst(number))),
    "a flood of opens": breach("reset-flood", flood(syn)),
    "opens that carry data past the credit": breach(
        "window-exceeded", once(pack(DATA, SYN, 1, INITIAL_WINDOW + 1), b"x")
    ),
    "data past the window": breach("window-exceeded", once(syn(0), pack(DATA, 0, 1, INITIAL_WINDOW + 1))),
    "a length of four gigabytes": breach("window-exceeded", once(syn(0), pack(DATA, 0, 1, LARGEST_U32))),
    "credit past its type": breach("window-overflow", once(syn(0), pack(WINDOW, 0, 1, LARGEST_U32))),
    "pings whose answers are read": breach("ping-flood", pings_and_reads),
    "pings whose answers are not read": breach(
        "ping-flood", flood(lambda number: pack(PING, SYN, 0, number))
    ),
    "answers nobody asked for": breach("empty-flood", flood(lambda number: pack(PING, ACK, 0, number))),
    "data frames of nothing": breach("empty-flood", flood(lambda _: data(b""), first=syn(0))),
    "credit of nothing": breach("empty-flood", flood(lambda _: pack(WINDOW, 0, 1, 0), first=syn(0))),
    "go-aways without end": breach("empty-flood", flood(lambda _: pack(GO_AWAY, 0, 0, 0), first=syn(0))),
    "questions by a peer that reads nothing": Attack(
        says=never_reads,
        ends="protocol error: control-backlog",
        limits=Limits(pings_per_second=LARGEST_U32, control_frames=FEW),
    ),
    "opens after its own go-away": Attack(
        says=goes_and_opens,
        ends="the peer went away and the last stream ended",
        close=(1000, "went away"),
    ),
    "opens that never ask for anything": Attack(
        says=opens_without_asking,
        ends="the peer closed the connection",
        limits=Limits(half_open_streams=FEW),
    ),
    "ids in leaps": Attack(
        says=leaps_of_ids,
        ends="the peer closed the connection",
        limits=Limits(open_streams=FEW, resets_per_second=LARGEST_U32, control_frames=LEAPS),
    ),
    "data in frames of one byte": Attack(says=one_byte_yamux_frames, ends="the peer closed the connection"),
    "requests that are never finished": Attack(
        says=unfinished_requests, ends="the peer closed the connection", worker=True
    ),
}
WEBSOCKET = {
    "a message of 2^62 bytes": Attack(
        says=lambda attacker: attacker.put(b"\x82\xff\x40" + bytes(7) + KEY), ends="at most 4194304"
    ),
    "continuations of nothing": Attack(
        says=flood_of_websocket(Opcode.CONTINUATION, final=False), ends="frames without payload in a second"
    ),
    "messages of nothing": Attack(
        says=flood_of_websocket(Opcode.BINARY), ends="frames without payload in a second"
    ),
    "pings": Attack(says=flood_of_websocket(Opcode.PING), ends="frames without payload in a second"),
    "pongs": Attack(says=flood_of_websocket(Opcode.PONG), ends="frames without payload in a second"),
    "messages of one byte": Attack(says=one_byte_websocket_frames, ends="the peer closed the connection"),
    "a handshake and a stream byte by byte": Attack(
        says=byte_by_byte, ends="the peer closed the connection", step=1
    ),
}


def judge(attack: Attack, *, carrier: str) -> None:
    """Play it and hold the process to its promises."""
    with offering(carrier):
        seen = asyncio.run(siege(attack))
    assert attack.ends in seen.ending.cause, f"the session ended as {seen.ending}"
    if attack.close is not None:
        assert seen.heard_close == attack.close
    assert seen.still_connected, "the other session was ended too"
    assert seen.tasks_left <= 0, "a task of the attack lives on"
    assert seen.grown_bytes <= GROWTH_BYTES, f"the process grew by {seen.grown_bytes} bytes"
    assert seen.fair, (
        f"a small request of another session waited for {seen.attacked.worst_cpu_s:.3f} s of work, "
        f"when idle for {seen.idle.worst_cpu_s:.3f} s; at most {FAIR_RATIO:g} times that, or its fair share"
    )


@pytest.mark.holds("T-13", "T-18")
@pytest.mark.parametrize("name", YAMUX)
def test_an_attack_on_the_multiplexer_has_its_named_end_and_harms_nobody_else(name: str) -> None:
    judge(YAMUX[name], carrier="takeover")


@pytest.mark.holds("T-13", "T-18")
@pytest.mark.parametrize("name", WEBSOCKET)
def test_an_attack_on_the_websocket_has_its_named_end_and_harms_nobody_else(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("inference_fleet.tunnel.websocket.IDLE_FRAMES", FEW)
    judge(WEBSOCKET[name], carrier="takeover")


@pytest.mark.parametrize(
    "name", ["rapid reset", "pings whose answers are read", "data in frames of one byte"]
)
def test_behind_plain_asgi_the_same_holds(name: str) -> None:
    judge(YAMUX[name], carrier="asgi")


@pytest.mark.holds("T-14")
def test_a_large_message_of_an_awaited_carrier_leaves_turns_to_everybody_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story() -> None:
        pings = 8 * 1024
        limits = Limits(pings_per_second=2 * pings, control_frames=2 * pings)
        async with piped(limits=limits, timings=PATIENT) as both:
            read, receive = [0], both.server._mux.receive_header

            def counted(piece: bytes | memoryview, now: float) -> Sequence[Event]:
                read[0] += 1
                return receive(piece, now)

            monkeypatch.setattr(both.server._mux, "receive_header", counted)
            both.server_carrier.inbox.put_nowait(pack(PING, SYN, 0, 1) * pings)
            seen = set[int]()
            while read[0] < pings:
                seen.add(read[0])
                await asyncio.sleep(0)
            assert len(seen - {0}) >= 3, "all of the message was read in one turn of the loop"

    asyncio.run(story())
