"""An address peers can dial, or an error that says what to set."""

from __future__ import annotations

import pytest

from inference_fleet.cluster import UndialableAddress, discover_address
from inference_fleet.cluster.addresses import dialable, route_source

URL = "postgresql://u:hunter22@db.example:5433/x"


@pytest.mark.holds("B-3")
def test_the_source_of_the_route_to_the_database_is_the_address() -> None:
    asked: list[tuple[str, int]] = []

    def source_of(host: str, port: int) -> str:
        asked.append((host, port))
        return "10.1.2.3"

    assert discover_address(URL, 8080, source_of=source_of) == "10.1.2.3:8080"
    assert asked == [("db.example", 5433)]


@pytest.mark.holds("B-3")
@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("0.0.0.0", "unspecified"),  # noqa: S104  # nothing is bound to it
        ("::", "unspecified"),
        ("127.0.0.1", "loopback"),
        ("127.8.9.1", "loopback"),
        ("::1", "loopback"),
        ("::ffff:127.0.0.1", "loopback"),
        ("169.254.7.7", "link-local"),
        ("fe80::1", "link-local"),
        ("fe80::1%eth0", "zoned"),
        ("2001:db8::1%eth0", "zoned"),
        ("nonsense", "not an IP address"),
    ],
)
def test_an_address_no_peer_can_dial_is_an_error_that_names_the_remedy(source: str, why: str) -> None:
    with pytest.raises(UndialableAddress, match=why) as caught:
        discover_address(URL, 8080, source_of=lambda _host, _port: source)
    assert "BLACKSTART_ADVERTISE_ADDRESS" in str(caught.value)
    assert "hunter22" not in str(caught.value)


@pytest.mark.holds("B-3")
@pytest.mark.parametrize("port", [0, -1, 65536])
def test_a_port_nobody_can_dial_is_an_error(port: int) -> None:
    with pytest.raises(UndialableAddress, match=f"port {port} is not from 1 to 65535"):
        dialable("10.1.2.3", port)


@pytest.mark.parametrize(
    ("source", "shown"), [("10.1.2.3", "10.1.2.3:1"), ("2001:db8::5", "[2001:db8::5]:1")]
)
def test_a_dialable_address_is_written_as_a_url_would(source: str, shown: str) -> None:
    assert dialable(source, 1) == shown


@pytest.mark.parametrize(
    "url", ["postgresql:///x?host=/run/postgresql", "postgresql://a,b/x", "postgresql://u@h/x?nonsense=1"]
)
def test_a_database_without_one_host_has_no_route(url: str) -> None:
    with pytest.raises(UndialableAddress, match="BLACKSTART_ADVERTISE_ADDRESS"):
        discover_address(url, 8080)


def test_no_route_at_all_is_said_so() -> None:
    def source_of(_host: str, _port: int) -> str:
        raise OSError("Network is unreachable")

    with pytest.raises(UndialableAddress, match=r"there is no route to the database host db\.example"):
        discover_address(URL, 8080, source_of=source_of)


@pytest.mark.holds("B-3")
def test_a_database_on_this_very_host_is_found_out() -> None:
    assert route_source("127.0.0.1", 5432) == "127.0.0.1"
    with pytest.raises(UndialableAddress, match="loopback"):
        discover_address("postgresql://u@127.0.0.1:5432/x", 8080)
