"""One hop of the control chain: accepts, connects onwards, and copies both ways with blocking sockets."""

from __future__ import annotations

import argparse
import socket
import sys
import threading
from typing import Final

from bench.content import CHUNK

_BACKLOG: Final = 1024


def carry(caller: socket.socket, onwards: int) -> None:
    """One connection to its end, a thread a direction."""
    with caller, socket.create_connection(("127.0.0.1", onwards)) as far:
        for sock in (caller, far):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        back = threading.Thread(target=copy, args=(far, caller), daemon=True)
        back.start()
        copy(caller, far)
        back.join()


def copy(source: socket.socket, target: socket.socket) -> None:
    """Everything until the end of file, which is passed on."""
    buffer = bytearray(CHUNK)
    view = memoryview(buffer)
    try:
        while count := source.recv_into(buffer):
            target.sendall(view[:count])
        target.shutdown(socket.SHUT_WR)
    except OSError as error:
        sys.stderr.write(f"a copy broke: {error!r}\n")
        for sock in (source, target):
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue  # it is over already


def main() -> int:
    """`python -m bench.hop --port N --to M`."""
    parser = argparse.ArgumentParser(prog="python -m bench.hop")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--to", type=int, required=True)
    options = parser.parse_args()
    with socket.create_server(("127.0.0.1", options.port), backlog=_BACKLOG) as listener:
        while True:
            caller, _ = listener.accept()
            threading.Thread(target=carry, args=(caller, options.to), daemon=True).start()


if __name__ == "__main__":
    sys.exit(main())
