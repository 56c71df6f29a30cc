"""Somebody's own cluster under the harness: one class says how a node is run, the specs break it."""

from __future__ import annotations

import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

from blackstart import Command, Group, HttpReady, Place, Service, Topology, eventually

if TYPE_CHECKING:
    from collections.abc import Callable

    from blackstart import Cluster, Node

SERVER = Path(__file__).parent / "server.py"


class KeyValue(Service):
    """A node is `server.py PORT FOLDER`, ready when it answers `GET /`."""

    name = "kv"
    ready = HttpReady(path="/")

    def command(self, place: Place) -> Command:
        """The port stays the same over restarts; a cold restart empties the folder."""
        return Command(argv=(sys.executable, str(SERVER), str(place.port), str(place.data_dir)))


def put(node: Node, key: str, value: bytes) -> None:
    """Store one value."""
    urllib.request.urlopen(
        urllib.request.Request(f"{node.url}/{key}", data=value, method="PUT"), timeout=5
    ).close()


def get(node: Node, key: str) -> bytes | int:
    """The value, or the status that came instead of one."""
    try:
        with urllib.request.urlopen(f"{node.url}/{key}", timeout=5) as answer:
            body: bytes = answer.read()
            return body
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def test_a_value_survives_a_crash_and_not_a_cold_restart(cluster: Callable[[Topology], Cluster]) -> None:
    running = cluster(Topology(groups=(Group(service=KeyValue(), count=2),), budgets={"answer": 5.0}))
    first, second = running.node("kv", 0), running.node("kv", 1)
    put(first, "colour", b"green")

    first.kill()
    assert second.alive, "the control: only the named node is dead"
    first.start()
    eventually(
        lambda: get(first, "colour"), b"green", within=running.topology.budget("answer"), watch=[first]
    )

    first.restart(cold=True)
    assert get(first, "colour") == 404
