"""Loads and small requests side by side, through the real `/v1` of a replica: who moves what, and how long each took."""

from __future__ import annotations

import http.client
import json
import time
import zlib
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from blackstart.cluster.waiting import eventually
from blackstart.core.head_of_line import Beside

if TYPE_CHECKING:
    from collections.abc import Iterator

    from blackstart.fleet import Fleet

WEIGHTS: Final = "weights"
WARM: Final = "babbler-0"
_PATH: Final = "/v1/chat/completions"
_PIECE: Final = 256 * 1024
_WORD: Final = {"messages": [{"role": "user", "content": "so"}], "max_tokens": 1, "seed": 7}


@dataclass(frozen=True)
class Taken:
    """What came of one answer."""

    began: float
    ended: float
    size: int
    checksum: int
    route: str


class Door:
    """One kept connection to a replica."""

    def __init__(self, fleet: Fleet, *, via: int) -> None:
        place = fleet.frontend(via).place
        self._http = http.client.HTTPConnection(place.host, place.port, timeout=fleet.timings.request_s)
        self._headers = {**fleet.admin.bearer, "Content-Type": "application/json"}

    def close(self) -> None:
        """Hang up."""
        self._http.close()

    def open(self, model: str, **more: Any) -> http.client.HTTPResponse:
        """Ask, and read no more than the head of the answer."""
        self._http.request("POST", _PATH, json.dumps({"model": model, **more}), self._headers)
        answer = self._http.getresponse()
        if answer.status != http.client.OK:
            raise AssertionError(f"{model}: {answer.status} {answer.read()[:500]!r}")
        return answer

    def take(self, model: str, **more: Any) -> Taken:
        """Ask, and take the whole answer."""
        began = time.monotonic()
        answer = self.open(model, **more)
        size, checksum = take_rest(answer)
        return Taken(began, time.monotonic(), size, checksum, answer.headers["X-Blackstart-Route"])

    def word(self) -> Taken:
        """The small request: one word of the warm model."""
        return self.take(WARM, **_WORD)

    def sent(self) -> int:
        """Bytes of weights that the model process has got rid of so far, by its own count."""
        return int(json.loads(self.open(WEIGHTS, messages=[]).read())["sent"])


@contextmanager
def door(fleet: Fleet, *, via: int) -> Iterator[Door]:
    """A connection to a replica, closed afterwards."""
    made = Door(fleet, via=via)
    try:
        yield made
    finally:
        made.close()


def take_rest(answer: http.client.HTTPResponse) -> tuple[int, int]:
    """Read an answer to its end: how long it is, and the checksum of it."""
    view = memoryview(bytearray(_PIECE))
    size = checksum = 0
    while count := answer.readinto(view):
        checksum = zlib.crc32(view[:count], checksum)
        size += count
    return size, checksum


def wait_warm(fleet: Fleet) -> None:
    """Return when both models have answered at each replica, so that nobody pays for a first time."""
    within = fleet.timings.start_s + fleet.timings.backend_start_s
    for index in range(len(fleet.frontends)):

        def answers(index: int = index) -> int:
            with door(fleet, via=index) as one:
                return one.sent() + one.word().size

        eventually(answers, lambda size: size > 0, within=within, watch=fleet.watch)


def beside(fleet: Fleet, *, via: int, moving: bool, times: int) -> tuple[Beside, list[Taken], list[Taken]]:
    """The load so many times, one after another, and small requests back to back meanwhile: figures, loads, small ones.

    The window is the median load's: of many empty ones a single one may have met anything.
    """
    with door(fleet, via=via) as loading, door(fleet, via=via) as asking, ThreadPoolExecutor(1) as pool:
        loading.sent()  # a connection made and used before the clock starts, as is the other
        asking.word()
        moved: Future[list[Taken]] = pool.submit(
            lambda: [loading.take(WEIGHTS, messages=[], weights=moving) for _ in range(times)]
        )
        words = []
        while not moved.done():
            words.append(asking.word())
        loads = moved.result()
    window = median(load.ended - load.began for load in loads)
    return Beside(window=window, probes=[word.ended - word.began for word in words]), loads, words
