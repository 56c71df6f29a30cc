"""The control over TLS: the same transfers, checked alike."""

from __future__ import annotations

import socket
import ssl
import threading
from typing import TYPE_CHECKING

import pytest

from bench import client
from bench.certificate import make_certificate
from bench.content import CHUNK
from bench.secure import serve_caller
from inference_fleet.settings import Timings

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.needs("openssl")

WITHIN = Timings.drill().request_s


@pytest.mark.parametrize("direction", ["down", "up"])
def test_a_transfer_over_tls_is_clocked_and_hashed(tmp_path: Path, direction: str) -> None:
    made = make_certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made.cert, made.key)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(WITHIN)

        def serve() -> None:
            serve_caller(listener.accept()[0], context)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            seen = client.transfer(
                port=listener.getsockname()[1],
                direction=direction,
                size=2 * CHUNK + 3,
                hashed=True,
                within=WITHIN,
                cert=str(made.cert),
            )
        finally:
            thread.join(WITHIN)
    assert seen["ended"] > seen["began"]
