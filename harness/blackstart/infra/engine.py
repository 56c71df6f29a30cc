"""A container engine, spoken to in plain HTTP: does one answer, what has it got, remove what a dead run left.

Small on purpose. The guardian runs it as a command (`python -m blackstart.infra.engine remove NAME`) after everybody who
had a client library loaded is dead, on machines that may have an engine and no `docker` program.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import socket
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode, urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

DEFAULT_SOCKET = "/var/run/docker.sock"
RUN_LABEL = "org.blackstart.run"
HOST_LABEL = "org.blackstart.host"
ANSWER_S = 0.5
WANTED_ANSWER_S = 20.0  # for whoever cannot do without: a loaded machine is no missing engine
_COMMAND_S = 30.0
_LOG_LINES = 2000


class EngineError(Exception):
    """The engine said no, or nothing; the text names the request and the answer."""


class EngineSilent(EngineError):
    """The engine did not answer in time; another time it may."""


class Silence(str):
    """Why there is no engine, where what was asked took the connection and said nothing in time."""

    __slots__ = ()


@dataclass(frozen=True)
class Engine:
    """An engine that answered."""

    address: str
    version: str

    def request(
        self, method: str, path: str, *, query: Mapping[str, str] | None = None, within_s: float = _COMMAND_S
    ) -> bytes:
        """One call of its API; `EngineError` for any answer but success."""
        target = quote(path) + ("?" + urlencode(query) if query else "")
        connection = _connection(self.address, within_s)
        try:
            connection.request(method, target, headers={"Host": "engine"})
            response = connection.getresponse()
            body = response.read()
        except (OSError, http.client.HTTPException) as error:
            kind = EngineSilent if isinstance(error, TimeoutError) else EngineError
            raise kind(f"{self.address}: {method} {path}: {str(error) or type(error).__name__}") from error
        finally:
            connection.close()
        if response.status >= 300:
            raise EngineError(f"{self.address}: {method} {path}: {response.status} {_message(body)}")
        return body

    def has_image(self, image: str) -> bool:
        """Whether the image is there, without pulling it."""
        try:
            self.request("GET", f"/images/{image}/json")
        except EngineError as error:
            if ": 404 " in str(error):
                return False
            raise
        return True

    def images(self) -> tuple[str, ...]:
        """Tags that are there, for a remedy."""
        told = json.loads(self.request("GET", "/images/json"))
        return tuple(sorted(tag for image in told for tag in image.get("RepoTags") or ()))

    def containers(self, *, label: str) -> list[dict[str, Any]]:
        """Every container with a label, stopped ones too: `Names`, `Labels`, `Created`, `State`."""
        filters = json.dumps({"label": [label]})
        told: list[dict[str, Any]] = json.loads(
            self.request("GET", "/containers/json", query={"all": "1", "filters": filters})
        )
        return told

    def runs(self, name: str) -> bool:
        """Whether a container is there and has not ended."""
        try:
            told = json.loads(self.request("GET", f"/containers/{name}/json"))
        except EngineError as error:
            if ": 404 " in str(error):
                return False
            raise
        return bool(told["State"]["Running"])

    def remove(self, name: str, *, log: Path | None = None) -> bool:
        """End and remove a container, its anonymous volumes too; whether it was there. Its log is kept first."""
        if log is not None:
            self.save_log(name, log)
        try:
            self.request("DELETE", f"/containers/{name}", query={"force": "1", "v": "1"})
        except EngineError as error:
            if ": 404 " in str(error):
                return False
            if ": 409 " in str(error):  # somebody else is removing it at this moment
                return True
            raise
        return True

    def save_log(self, name: str, log: Path) -> None:
        """The end of what a container printed, into a file. One that is gone has nothing to say."""
        query = {"stdout": "1", "stderr": "1", "timestamps": "1", "tail": str(_LOG_LINES)}
        try:
            raw = self.request("GET", f"/containers/{name}/logs", query=query)
        except EngineError as error:
            raw = f"{error}\n".encode()
            if ": 404 " in str(error):
                return
            log.write_bytes(raw)
            return
        log.write_bytes(_without_frames(raw))


def engine_address(environ: Mapping[str, str] | None = None) -> str:
    """Where an engine would answer: `DOCKER_HOST`, or the usual socket."""
    given = (os.environ if environ is None else environ).get("DOCKER_HOST", "")
    return given or f"unix://{DEFAULT_SOCKET}"


def find_engine(address: str = "", *, within_s: float = ANSWER_S) -> Engine | str:
    """The engine, or why there is none. One that does not answer within half a second is not there."""
    where = address or engine_address()
    parts = urlsplit(where)
    if parts.scheme == "unix" and not Path(parts.path).exists():
        return f"no container engine: {parts.path} does not exist"
    try:
        told = json.loads(Engine(where, "").request("GET", "/version", within_s=within_s))
        return Engine(where, str(told["Version"]))
    except EngineSilent as silent:
        return Silence(f"no container engine: {silent}")
    except (EngineError, ValueError, KeyError, TypeError) as error:
        return f"no container engine: {error}"


def find_wanted_engine(
    address: str = "", *, remark: Callable[[str], object], within_s: float = WANTED_ANSWER_S
) -> Engine | str:
    """The same for whoever cannot do without: silence is asked once more and waited for, and `remark` is told."""
    found = find_engine(address)
    if not isinstance(found, Silence):
        return found
    began = time.monotonic()
    again = find_engine(address, within_s=within_s)
    answer = again if isinstance(again, str) else f"engine {again.version} answered"
    remark(f"{found}; asked again: {answer} after {time.monotonic() - began:.1f} s of {within_s:g} s")
    return again


def host_identity() -> str:
    """This machine, this boot, this network namespace: whose runs this process could see alive."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return f"{boot}:{os.stat('/proc/self/ns/net').st_ino}"  # noqa: PTH116 - a magic link; only its inode is wanted


def remove_leftovers(engine: Engine, *, older_than_s: float, now: float | None = None) -> tuple[str, ...]:
    """Remove containers of runs that are dead; the names removed.

    Dead is: of this host and nobody guards the run any more, or of any host and older than a bound no run reaches.
    """
    wall = time.time() if now is None else now
    removed: list[str] = []
    for container in engine.containers(label=RUN_LABEL):
        labels = container.get("Labels") or {}
        old = wall - float(container.get("Created", wall)) > older_than_s
        ours = labels.get(HOST_LABEL) == host_identity()
        if old or (ours and not _guarded(labels.get(RUN_LABEL, ""))):
            name = str((container.get("Names") or ["?"])[0]).lstrip("/")
            if engine.remove(name):
                removed.append(name)
    return tuple(removed)


def _guarded(run_id: str) -> bool:
    from blackstart.process.wire import address  # noqa: PLC0415 - `remove` runs without it

    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.settimeout(ANSWER_S)
        try:
            connection.connect(address(run_id))
        except ConnectionRefusedError:
            return False
        except OSError:
            return True  # in doubt it lives
    return True


def _without_frames(raw: bytes) -> bytes:
    """The engine wraps output in frames (stream, three zeros, length) unless the container has a terminal."""
    out = bytearray()
    at = 0
    while at + 8 <= len(raw):
        if raw[at] > 2 or raw[at + 1 : at + 4] != b"\0\0\0":
            return raw
        length = int.from_bytes(raw[at + 4 : at + 8], "big")
        out += raw[at + 8 : at + 8 + length]
        at += 8 + length
    return bytes(out)


def _message(body: bytes) -> str:
    try:
        return str(json.loads(body)["message"])[:500]
    except (ValueError, KeyError, TypeError):
        return body[:200].decode("utf-8", "replace")


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over the engine's Unix socket."""

    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("engine", timeout=timeout)
        self._path = path
        self._within_s = timeout

    def connect(self) -> None:
        """Instead of a TCP connection."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self._within_s)
        self.sock.connect(self._path)


def _connection(address: str, within_s: float) -> http.client.HTTPConnection:
    parts = urlsplit(address)
    if parts.scheme == "unix":
        return _UnixConnection(parts.path, within_s)
    if parts.scheme in {"tcp", "http"} and parts.hostname:
        return http.client.HTTPConnection(parts.hostname, parts.port or 2375, timeout=within_s)
    raise EngineError(f"{address}: neither unix:// nor tcp://; try: DOCKER_HOST=unix://{DEFAULT_SOCKET}")


def main(argv: Sequence[str] | None = None) -> int:
    """`remove NAME`: exit status 0 when it is gone, 1 with a reason when the engine would not."""
    parser = argparse.ArgumentParser(prog="python -m blackstart.infra.engine")
    parser.add_argument("--address", default="")
    parser.add_argument("--log", type=Path)
    parser.add_argument("command", choices=["remove"])
    parser.add_argument("name")
    options = parser.parse_args(argv)
    try:
        Engine(options.address or engine_address(), "").remove(options.name, log=options.log)
    except (EngineError, OSError) as error:
        sys.stderr.write(f"blackstart: container={options.name}: {error}; try: docker rm -f {options.name}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
