"""Several addresses, one at a time; what comes back is bounded and tells no secret."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from typing import TYPE_CHECKING

import pytest
from starlette.responses import Response

from blackstart.net.certificates import Authority
from inference_fleet.roster.wire import Heartbeat, Registered
from inference_fleet.worker.frontends import Answer, Frontends, Rotation, Unreachable, decoded

from .doubles import NODE, TIMINGS, Home, error, frontend

if TYPE_CHECKING:
    from pathlib import Path

BODY = Heartbeat(boot_id="boot-0001")
PATH = f"/api/node/{NODE}/heartbeat"


def test_a_fleet_spreads_over_the_addresses_and_a_node_keeps_its_place() -> None:
    urls = ("http://a", "http://b", "http://c")

    first = [Rotation(urls, node_name=f"worker-{number}").current for number in range(60)]

    assert set(first) == set(urls)
    assert first == [Rotation(urls, node_name=f"worker-{number}").current for number in range(60)]
    rotation = Rotation(urls, node_name="worker-0")
    assert {rotation.current, rotation.advance(), rotation.advance()} == set(urls)


def test_an_answer_comes_back_with_its_code_and_its_wish(tmp_path: Path) -> None:
    async def story() -> None:
        async with (
            frontend() as double,
            Frontends.connect(Home(tmp_path, double.url).settings()) as frontends,
        ):
            double.beating.append(error(429, "rate_limited", Retry_After="3"))
            answer = await frontends.post(
                double.url, PATH, BODY, bearer="secret-1", within_s=TIMINGS.handshake_s
            )

            assert (answer.status, answer.code, answer.retry_after_s) == (429, "rate_limited", 3)
            assert double.bearers == ["Bearer secret-1"]

    asyncio.run(story())


def test_no_answer_and_an_endless_one_are_unreachable(tmp_path: Path) -> None:
    async def story() -> None:
        async with (
            frontend() as double,
            Frontends.connect(Home(tmp_path, double.url).settings()) as frontends,
        ):
            with pytest.raises(Unreachable, match=r"127\.0\.0\.1:1/"):
                await frontends.post(
                    "http://127.0.0.1:1", PATH, BODY, bearer="x", within_s=TIMINGS.handshake_s
                )
            double.beating.append(Response(b"x" * 100_000))
            with pytest.raises(Unreachable, match="longer than 65536"):
                await frontends.post(double.url, PATH, BODY, bearer="x", within_s=TIMINGS.handshake_s)

    asyncio.run(story())


@pytest.mark.needs("openssl")
def test_a_frontend_that_is_not_believed_is_unreachable_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And `SSL_CERT_FILE` is whom to believe: with the right authority the same address answers."""
    ours, other = Authority(tmp_path / "ours"), Authority(tmp_path / "other")
    shown = ours.issue("frontend", hosts=["127.0.0.1"])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(shown.cert, shown.key)

    async def answers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            await reader.readuntil(b"{")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
        writer.close()

    async def asked(port: int, trusted: Path) -> str:
        url = f"https://127.0.0.1:{port}"
        monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
        async with Frontends.connect(Home(tmp_path, url).settings()) as frontends:
            try:
                answer = await frontends.post(url, PATH, BODY, bearer="s3cret", within_s=TIMINGS.handshake_s)
            except Unreachable as error:
                return str(error)
            return str(answer.status)

    async def story() -> None:
        async with await asyncio.start_server(answers, "127.0.0.1", 0, ssl=context) as server:
            port = server.sockets[0].getsockname()[1]
            wrong = await asked(port, other.cert)
            assert f"https://127.0.0.1:{port}{PATH}: its certificate is not believed: unable to get" in wrong
            assert "try: SSL_CERT_FILE" in wrong
            assert "s3cret" not in wrong
            assert await asked(port, ours.cert) == "200", "the control"

    asyncio.run(story())


def test_a_proxy_of_the_environment_is_asked_for_what_is_posted_unless_the_address_is_excepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[bytes] = []

    async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await reader.readuntil(b"\r\n"))
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    async def posted(port: int, *, excepted: str) -> None:
        for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
            monkeypatch.delenv(name, raising=False)
            monkeypatch.delenv(name.upper(), raising=False)
        monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{port}")
        monkeypatch.setenv("NO_PROXY", excepted)
        url = "https://127.0.0.1:1"
        async with Frontends.connect(Home(tmp_path, url).settings()) as frontends:
            for path in ("/api/node/register", PATH):
                with pytest.raises(Unreachable):
                    await frontends.post(url, path, BODY, bearer="x", within_s=TIMINGS.handshake_s)

    async def story() -> None:
        async with await asyncio.start_server(proxy, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            await posted(port, excepted="127.0.0.1")
            assert seen == [], "the control: an excepted address is dialled"
            await posted(port, excepted="")
            assert [line.split()[:2] for line in seen] == [[b"CONNECT", b"127.0.0.1:1"]] * 2, "past the proxy"

    asyncio.run(story())


def answer_of(body: bytes, status: int = 200) -> Answer:
    return Answer(url="http://f/x", status=status, body=body, retry_after_s=None)


def test_a_quote_is_one_bounded_line_without_secrets() -> None:
    quoted = answer_of(b"token s3cr3t\nis \x00 bad " + b"y" * 1000).quote("s3cr3t")

    assert "s3cr3t" not in quoted
    assert quoted.startswith("token *** is   bad")
    assert len(quoted) <= 503
    assert answer_of(b"").quote() == "(empty body)"


@pytest.mark.parametrize("body", [b"", b"<html>", b"[" * 20_000, b'{"id":3}'])
def test_a_success_that_is_no_answer_of_ours_is_unreachable(body: bytes) -> None:
    with pytest.raises(Unreachable, match="no answer"):
        decoded(answer_of(body), Registered)
    assert answer_of(body).code == ""
