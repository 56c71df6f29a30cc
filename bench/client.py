"""Who drives the load: clocked transfers, small requests one after another, new connections many at once."""

from __future__ import annotations

import argparse
import sys
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from bench import bulk
from bench.bulk import SEND, TAKE, ContentWrong, Request
from bench.churn import churn
from bench.content import content
from bench.machine import raise_file_limit
from bench.remote import serve_calls
from bench.web import web_probe, web_transfer

if TYPE_CHECKING:
    from bench.remote import Calls

Seen: TypeAlias = tuple[float, float]
_LONGEST_PROBE: Final = 200_000


class Client:
    """The calls of one client process."""

    def __init__(self) -> None:
        self._halted = threading.Event()
        self._probing: Future[list[Seen]] | None = None

    def calls(self) -> Calls:
        """By name."""
        return {
            "hello": lambda: "client",
            "transfer": transfer,
            "probe": probe,
            "probe_on": self.probe_on,
            "probe_off": self.probe_off,
            "churn": churn,
            "web_transfer": web_transfer,
            "web_probe": web_probe,
        }

    def probe_on(self, *, port: int, within: float) -> None:
        """Begin to make small requests one after another; returns once the first has been answered."""
        self._halted.clear()
        first = threading.Event()
        pool = ThreadPoolExecutor(max_workers=1)
        self._probing = pool.submit(self._probe_until_halted, port, within, first)
        pool.shutdown(wait=False)
        if not first.wait(within):
            raise TimeoutError(f"no small request was answered within {within:g} s")

    def probe_off(self, *, within: float) -> list[Seen]:
        """Stop; gives when each began and ended."""
        self._halted.set()
        assert self._probing is not None, "probe_on comes first"
        return self._probing.result(within)

    def _probe_until_halted(self, port: int, within: float, first: threading.Event) -> list[Seen]:
        seen: list[Seen] = []
        while not self._halted.is_set() and len(seen) < _LONGEST_PROBE:
            seen += probe(port=port, count=1, within=within)
            first.set()
        return seen


def probe(*, port: int, count: int, within: float) -> list[Seen]:
    """Small requests on new connections, one after another: when each began and ended (monotonic)."""
    seen: list[Seen] = []
    for _ in range(count):
        began = time.monotonic()
        with bulk.connect(port, within=within) as sock:
            bulk.echo(sock)
        seen.append((began, time.monotonic()))
    return seen


def transfer(
    *, port: int, direction: str, size: int, hashed: bool, within: float, cert: str | None = None
) -> dict[str, Any]:
    """One bulk transfer on one connection that was used before the clock started; `ContentWrong` if anything differs.

    Gives when it began and ended on the monotonic clock, which all processes of a machine share.
    """
    with bulk.connect(port, within=within, cert=cert) as sock:
        bulk.echo(sock)
        began = time.monotonic()
        if direction == "down":
            sock.sendall(Request(SEND, size, hashed).encode())
            good, digest = bulk.take_content(sock, size, hashed=hashed)
            ended = time.monotonic()
            reply = bulk.read_reply(sock)
        else:
            sock.sendall(Request(TAKE, size, hashed).encode())
            digest = bulk.send_content(sock, size, hashed=hashed)
            reply = bulk.read_reply(sock)
            ended = time.monotonic()
            good = reply.good
    if not good or reply.count != size or reply.digest != digest:
        raise ContentWrong(
            f"{direction} of {size} bytes through port {port}: pieces {'agree' if good else 'differ'}, "
            f"{reply.count} bytes counted there, digest {reply.digest.hex()[:16]} there and {digest.hex()[:16]} here"
        )
    if hashed and digest != content().digest(size):
        raise ContentWrong(
            f"{direction} of {size} bytes through port {port}: both ends agree on other content"
        )
    return {"began": began, "ended": ended}


def main() -> int:
    """`python -m bench.client --port N`."""
    parser = argparse.ArgumentParser(prog="python -m bench.client")
    parser.add_argument("--port", type=int, required=True)
    port = parser.parse_args().port
    raise_file_limit()
    content()
    serve_calls(port, Client().calls())
    return 0


if __name__ == "__main__":
    sys.exit(main())
