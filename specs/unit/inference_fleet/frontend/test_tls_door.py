"""The door of TLS before a server's connections: it opens in time or closes, and those before it are counted."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import asynccontextmanager, closing
from typing import TYPE_CHECKING

import pytest
import uvicorn
from specs.unit.inference_fleet.tunnel.linked import TIMINGS, Secured, until

from blackstart.net.certificates import Authority
from inference_fleet.frontend import listener
from inference_fleet.frontend.listener import guarded_http, uvicorn_options
from inference_fleet.frontend.tls_door import behind_tls
from inference_fleet.settings.frontend import announced
from inference_fleet.tunnel import DialFailed, dial_websocket

from .test_listener import hung_up

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from uvicorn._types import ASGIReceiveCallable, ASGISendCallable, Scope

pytestmark = pytest.mark.needs("openssl")

SHORT_S = TIMINGS.keepalive_timeout_s / 2
ASKED = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
HEARD: list[str] = []


async def app(scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
    """Says by what scheme it was asked, and takes no WebSocket."""
    assert scope["type"] != "lifespan"
    HEARD.append(scope["scheme"])
    await receive()
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1000, "reason": ""})
        return
    body = scope["scheme"].encode()
    await send(
        {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]}
    )
    await send({"type": "http.response.body", "body": body, "more_body": False})


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Secured:
    return Secured.made(tmp_path_factory.mktemp("tls"))


class Door:
    """A server of the replicas' own kind, with nothing behind it but `app`."""

    def __init__(self, server: uvicorn.Server, secured: Secured) -> None:
        self.server = server
        self.port: int = server.servers[0].sockets[0].getsockname()[1]
        self.trust = secured.client

    async def silent(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def secret(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port, ssl=self.trust)

    async def ask(self) -> bytes:
        reader, writer = await self.secret()
        writer.write(ASKED)
        said = await hung_up(reader)
        writer.close()
        return said


@asynccontextmanager
async def door(
    secured: Secured,
    *,
    header_s: float = TIMINGS.request_s,
    handshake_s: float | None = None,
    parting_s: float = TIMINGS.keepalive_timeout_s,
) -> AsyncIterator[Door]:
    """As replicas have it; `handshake_s` where a story needs another time for that than for the headers."""
    options = uvicorn_options(
        header_s=header_s, idle_s=TIMINGS.http_idle_s, parting_s=parting_s, tls=secured.server
    )
    if handshake_s is not None:
        inside = guarded_http(header_s=header_s)
        options["http"] = behind_tls(inside, secured.server, within_s=handshake_s, parting_s=parting_s)
    config = uvicorn.Config(app, host="127.0.0.1", port=0, lifespan="off", **options)
    server = uvicorn.Server(config)
    config.load()
    server.lifespan = config.lifespan_class(config)
    await server.startup()
    try:
        yield Door(server, secured)
    finally:
        await server.shutdown()


def client_hello() -> bytes:
    """The first words of a handshake."""
    out = ssl.MemoryBIO()
    begun = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).wrap_bio(ssl.MemoryBIO(), out, server_hostname="x")
    with pytest.raises(ssl.SSLWantReadError):
        begun.do_handshake()
    return out.read()


def test_what_is_asked_behind_it_is_asked_over_https_and_nothing_is_answered_in_the_open(
    secured: Secured,
) -> None:
    async def story() -> None:
        async with door(secured) as front:
            assert (await front.ask()).endswith(b"\r\n\r\nhttps")
            HEARD.clear()
            reader, writer = await front.silent()
            writer.write(ASKED)
            assert b"HTTP/" not in await hung_up(reader)
            writer.close()
            assert HEARD == []

    asyncio.run(story())


async def _hung_up_after(front: Door, said: bytes, *, answered: bool) -> None:
    reader, writer = await front.silent()
    with closing(writer):
        writer.write(said)
        try:
            heard = await hung_up(reader)
        except TimeoutError:
            raise AssertionError("a handshake went on for longer than it may") from None
        assert (heard != b"") is answered


def test_a_connection_that_never_finishes_its_handshake_is_hung_up_on(secured: Secured) -> None:
    async def story() -> None:
        async with door(secured, header_s=SHORT_S) as front:
            hello = client_hello()
            # silence, half a greeting, and a whole one that nothing follows
            await asyncio.gather(
                *(_hung_up_after(front, said, answered=said == hello) for said in (b"", hello[:9], hello))
            )

        async with door(secured) as front:  # the control: with more time it waits
            reader, writer = await front.silent()
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(SHORT_S):
                    await reader.read()
            writer.close()

    asyncio.run(story())


def test_a_handshake_that_cannot_begin_is_hung_up_on_and_told(
    secured: Secured, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        async with door(secured, parting_s=0.0) as front:  # asyncio takes no such time
            reader, writer = await front.silent()
            with closing(writer):
                try:
                    assert await hung_up(reader) == b""
                except TimeoutError:
                    raise AssertionError("a connection was left hanging") from None
            assert front.server.server_state.connections == set()

    asyncio.run(story())
    assert "its TLS handshake could not begin" in caplog.text
    assert "ValueError" in caplog.text


def test_behind_it_the_headers_have_their_time_as_ever(secured: Secured) -> None:
    async def story() -> None:
        async with door(secured, header_s=SHORT_S, handshake_s=TIMINGS.request_s) as front:
            reader, writer = await front.secret()
            assert await hung_up(reader) == b"", "the headers were waited for without end"
            writer.close()

    asyncio.run(story())


def test_handshakes_under_way_are_among_the_silent_ones_which_are_few(
    secured: Secured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "SILENT_AT_ONCE", 3)

    async def story() -> None:
        async with door(secured) as front:
            kept, spoken = await front.secret()
            held = [spoken]
            spoken.write(ASKED.replace(b"close", b"keep-alive"))
            await kept.readuntil(b"https")
            held += [(await front.silent())[1] for _ in range(3)]
            await until(lambda: len(front.server.server_state.connections) == 1 + 3)
            reader, writer = await front.silent()
            held.append(writer)
            try:
                async with asyncio.timeout(TIMINGS.stream_open_s):
                    refused = await hung_up(reader) == b""
            except TimeoutError:
                refused = False
            spoken.write(ASKED)
            served = b"200" in await kept.readline()
            for each in held:
                each.close()
            assert refused, "one more silent connection is not one too many"
            assert served, "who has spoken is not counted"
            await until(lambda: not front.server.server_state.connections)
            assert (await front.ask()).endswith(b"https"), "there is room again"

    asyncio.run(story())


def test_a_server_that_stops_waits_for_no_handshake(secured: Secured) -> None:
    async def story() -> None:
        async with door(secured) as front:
            reader, writer = await front.silent()
            await until(lambda: len(front.server.server_state.connections) == 1)
            async with asyncio.timeout(TIMINGS.start_s):
                await front.server.shutdown()
            assert await hung_up(reader) == b""
            writer.close()

    asyncio.run(story())


def test_a_dial_whose_certificate_is_not_believed_says_why_and_sends_nothing(
    secured: Secured, tmp_path: Path
) -> None:
    stranger = Authority(tmp_path / "stranger")
    wary = ssl.create_default_context(cafile=stranger.cert)
    unbelieved = "its certificate is not believed: "
    expired = Secured.made(tmp_path / "old", days=-1)
    named = Secured.made(tmp_path / "named", host="replica.test")

    async def failure(of: Secured, trust: ssl.SSLContext, **more: str) -> str:
        HEARD.clear()
        async with door(of) as front:
            url = f"https://127.0.0.1:{front.port}/x"
            headers = {"Authorization": "Bearer s3cret"}
            with pytest.raises(DialFailed) as caught:
                await dial_websocket(
                    url, subprotocol="x", headers=headers, timings=TIMINGS, ssl=trust, **more
                )
            assert str(caught.value).startswith(url)
            assert "s3cret" not in str(caught.value)
        return str(caught.value)

    async def story() -> None:
        assert f"{unbelieved}unable to get local issuer certificate; try: SSL_CERT_FILE" in await failure(
            secured, wary
        )
        assert f"{unbelieved}certificate has expired; try: a calendar" in await failure(
            expired, expired.client, remedy="a calendar"
        )
        assert "not valid for '127.0.0.1'" in await failure(named, named.client)
        assert "not valid for 'other.test'" in await failure(named, named.client, server_name="other.test")
        assert HEARD == [], "the request was heard before its certificate was"

    asyncio.run(story())


def test_a_dial_is_verified_on_the_name_that_is_expected(tmp_path: Path) -> None:
    named = Secured.made(tmp_path / "named", host="replica.test")

    async def story() -> None:
        HEARD.clear()
        async with door(named) as front:
            with pytest.raises(ConnectionError) as caught:
                await dial_websocket(
                    f"https://127.0.0.1:{front.port}/x",
                    subprotocol="x",
                    headers={},
                    timings=TIMINGS,
                    ssl=named.client,
                    server_name="replica.test",
                )
            assert "HTTP 403" in str(caught.value), str(caught.value)
            assert HEARD == ["wss"]

    asyncio.run(story())


def test_an_address_says_in_its_scheme_alone_that_it_speaks_tls() -> None:
    assert announced("h:1", scheme="https") == "https://h:1"
    assert announced("h:1", scheme="http") == "h:1"
