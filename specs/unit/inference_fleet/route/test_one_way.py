"""Nothing but the dialer leads to a worker: the code itself is walked, so a second way cannot slip in unseen."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import inference_fleet
from inference_fleet.route import WorkerDialer

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(inference_fleet.__file__).parent

# The replica's side of the fleet. The worker's side connects to its own loopback, which is the point of it.
REPLICA = ("auth", "cluster", "frontend", "roster", "route", "store", "upkeep")

# Whoever may ask a tunnel for a stream: the dialer, the owner that serves a relay, and the link that asks an owner.
STREAM_OPENERS = {"route/dialer.py", "route/peer_server.py", "route/peer_links.py"}

# Whoever may dial anything at all: peers by WebSocket, and the database. The address probe sends nothing.
DIALLERS = {
    "frontend/peer_dial.py": {"dial_websocket"},
    "store/database.py": {"connect"},
    "store/migrating.py": {"connect"},
    "cluster/addresses.py": {"connect"},
}

_OPENING = {"request_stream", "open_stream"}
_DIALLING = {
    "create_connection",
    "open_connection",
    "dial_websocket",
    "connect",
    "connect_loopback",
    "urlopen",
    "TCPConnector",
}
_CLIENT_LIBRARIES = {
    "httpx2",
    "httpx",
    "requests",
    "urllib3",
    "http.client",
    "urllib.request",
    "websockets.asyncio",
    "websockets.sync",
    "websockets.client",
    "grpc",
}


def modules() -> Iterator[tuple[str, ast.Module]]:
    for package in REPLICA:
        for path in sorted((ROOT / package).rglob("*.py")):
            yield path.relative_to(ROOT).as_posix(), ast.parse(path.read_text())


def calls(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Attribute):
                yield node.func.attr
            elif isinstance(node.func, ast.Name):
                yield node.func.id


def imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def second_ways(name: str, tree: ast.Module) -> list[str]:
    """Every construct of a module that could reach a worker past the dialer."""
    found = [
        f"{name} calls {call}" for call in calls(tree) if call in _OPENING and name not in STREAM_OPENERS
    ]
    found += [
        f"{name} calls {call}"
        for call in calls(tree)
        if call in _DIALLING and call not in DIALLERS.get(name, set())
    ]
    found += [
        f"{name} imports {module}"
        for module in imports(tree)
        if any(module == library or module.startswith(f"{library}.") for library in _CLIENT_LIBRARIES)
    ]
    return found


@pytest.mark.holds("B-51", "B-52")
def test_no_module_of_a_replica_can_reach_a_worker_but_through_the_dialer() -> None:
    found = [way for name, tree in modules() for way in second_ways(name, tree)]
    assert not found, f"a second way to a worker: {found}"
    walked = {name for name, _ in modules()}
    assert set(STREAM_OPENERS) | set(DIALLERS) <= walked, "an exception here names a module that is gone"


@pytest.mark.parametrize(
    "line",
    [
        "session.open_stream()",
        "await request_stream(session, request, deadline=deadline)",
        "await asyncio.open_connection('127.0.0.1', port)",
        "socket.create_connection((host, port))",
        "import httpx2",
        "from urllib.request import urlopen",
    ],
)
def test_the_walk_sees_each_way_there_could_be(line: str) -> None:
    body = line.replace("await ", "")
    assert second_ways("frontend/shortcut.py", ast.parse(body)), "the control: the walk would have seen it"


@pytest.mark.holds("B-51")
def test_the_dialer_offers_one_way_and_no_other() -> None:
    offered = [name for name in vars(WorkerDialer) if not name.startswith("_")]
    assert offered == ["open"]


@pytest.mark.holds("B-52")
def test_the_http_client_of_a_request_is_made_over_a_stream_and_nowhere_else() -> None:
    makers = [name for name, tree in modules() if "stream_client" in set(calls(tree))]
    assert makers == ["frontend/passage.py"]
    sessions = [name for name, tree in modules() if {"ClientSession", "request"} & set(calls(tree))]
    assert sessions == [], "an HTTP client of its own could dial a worker's address"
