"""The raw server once more, over TLS: what the encryption itself costs, a control for tunnels that have it too."""

from __future__ import annotations

import argparse
import socket
import ssl
import sys
import threading
from typing import Final

from bench.bulk import ECHO, REQUEST_BYTES, Broken, Request, read_exactly, serve_transfer
from bench.content import content

_BACKLOG: Final = 1024
SERVING: Final = "serving"


def serve_caller(sock: socket.socket, context: ssl.SSLContext) -> None:
    """One caller to its end: echoes, and at most one transfer."""
    try:
        with context.wrap_socket(sock, server_side=True) as secure:
            request = Request.decode(read_exactly(secure, REQUEST_BYTES))
            while request.op == ECHO:
                secure.sendall(read_exactly(secure, request.size))
                request = Request.decode(read_exactly(secure, REQUEST_BYTES))
            serve_transfer(secure, request)
    except Broken:
        return  # the caller left between two requests
    except OSError as error:
        sys.stderr.write(f"a caller is hung up on: {error!r}\n")


def main() -> int:
    """`python -m bench.secure --port N --cert FILE --key FILE`."""
    parser = argparse.ArgumentParser(prog="python -m bench.secure")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--cert", required=True)
    parser.add_argument("--key", required=True)
    options = parser.parse_args()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(options.cert, options.key)
    content()
    with socket.create_server(("127.0.0.1", options.port), backlog=_BACKLOG) as listener:
        sys.stderr.write(f"{SERVING}\n")
        while True:
            sock, _ = listener.accept()
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=serve_caller, args=(sock, context), daemon=True).start()


if __name__ == "__main__":
    sys.exit(main())
