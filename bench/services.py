"""How the processes of a bench are started, each a role of its own."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench import remote
from bench.bulk import INFO, MAGIC, Request
from bench.secure import SERVING
from blackstart.core.topology import Command, LogReady, Service, TcpReady
from blackstart.fleet.services import FrontendService, WorkerService

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from bench.certificate import Certificate
    from bench.stands import Stand
    from blackstart.core.topology import Place
    from blackstart.fleet.options import FleetOptions
    from blackstart.fleet.services import Secrets

ROOT: Final = Path(__file__).resolve().parents[1]
LISTEN, PLAIN, TLS, CONTROL, DOORS = range(5)
"""The ports of a replica; from `DOORS` on, one for each stand of its carrier."""

_CALLED: Final = TcpReady(send=remote.HELLO, expect=remote.READY)
_INFO: Final = TcpReady(send=Request(INFO).encode(), expect=MAGIC)


def python_path() -> dict[str, str]:
    """Children work in folders of their own and must find this package, and whatever their parent found."""
    inherited = os.environ.get("PYTHONPATH")
    return {"PYTHONPATH": os.pathsep.join([str(ROOT), *([inherited] if inherited else [])])}


def trusting(certificate: Certificate | None) -> dict[str, str]:
    """What makes a worker believe our certificate."""
    return {} if certificate is None else {"SSL_CERT_FILE": str(certificate.cert)}


def certificate_arguments(certificate: Certificate | None) -> list[str]:
    """What a server is told of it."""
    return [] if certificate is None else ["--cert", str(certificate.cert), "--key", str(certificate.key)]


def tunnel_port(place: Place, stand: Stand) -> int:
    """Where a replica takes tunnels of a stand."""
    if stand.wire == "tls":
        return place.ports[TLS]
    return place.ports[LISTEN if stand.carrier == "takeover" else PLAIN]


class ReplicaService(FrontendService):
    """A replica of production with doors; all its replicas of one index have one carrier."""

    def __init__(
        self,
        name: str,
        options: FleetOptions,
        secrets: Secrets,
        *,
        database_url: Callable[[], str],
        certificate: Certificate | None,
        stands: Mapping[str, Sequence[Stand]],
        after: tuple[str, ...] = (),
    ) -> None:
        """`stands` by carrier; node N has carrier N."""
        self._stands = [(carrier, tuple(of_carrier)) for carrier, of_carrier in stands.items()]
        super().__init__(options, secrets, database_url=database_url, peer_address=self._peer_address)
        self.name = name
        self.ports = DOORS + max(len(of_carrier) for _, of_carrier in self._stands)
        self.after = after
        self._certificate = certificate

    def _peer_address(self, place: Place) -> str:
        """Peers come in by the same carrier as tunnels, and never over TLS: a peer link is dialled plain."""
        carrier, _ = self._stands[place.index]
        return f"{place.host}:{place.ports[LISTEN if carrier == 'takeover' else PLAIN]}"

    def command(self, place: Place) -> Command:
        """`python -m bench.frontend` with the environment of a replica."""
        carrier, stands = self._stands[place.index]
        argv = [sys.executable, "-m", "bench.frontend", "--carrier", carrier]
        argv += ["--plain-port", str(place.ports[PLAIN]), "--tls-port", str(place.ports[TLS])]
        argv += ["--control-port", str(place.ports[CONTROL])]
        argv += certificate_arguments(self._certificate)
        for number, stand in enumerate(stands):
            argv += ["--door", f"{place.ports[DOORS + number]}:{stand.model}"]
        env = {**super().command(place).env, **python_path()}
        return Command(argv=tuple(argv), env=env)


class ModelWorkerService(WorkerService):
    """`python -m inference_fleet.worker` itself; worker N serves the model of stand N."""

    after = ("owner",)

    def __init__(
        self,
        options: FleetOptions,
        secrets: Secrets,
        *,
        dials: Callable[[int], str],
        stands: Sequence[Stand],
        certificate: Certificate | None,
    ) -> None:
        super().__init__(options, secrets, dials=dials, models=self._write_model)
        self._stands = stands
        self._certificate = certificate

    def command(self, place: Place) -> Command:
        """The production command; it trusts our certificate."""
        command = super().command(place)
        return Command(argv=command.argv, env={**command.env, **python_path(), **trusting(self._certificate)})

    def _write_model(self, place: Place) -> Path:
        folder = place.data_dir.with_suffix(".models")
        model = folder / self._stands[place.index].model
        model.mkdir(parents=True, exist_ok=True)
        (model / "model.toml").write_text(
            'backend = "command"\ncommand = ["{python}", "-m", "bench.backend", "--port", "{port}"]\n',
            encoding="utf-8",
        )
        return folder


class CrowdService(Service):
    """Many workers in one process, for the memory of tunnels; its first port takes calls, the rest are a worker's."""

    name = "crowd"
    ports = WorkerService.ports
    ready = _CALLED
    after = ("memory",)

    def __init__(
        self,
        options: FleetOptions,
        secrets: Secrets,
        *,
        dials: Callable[[int], str],
        certificate: Certificate | None,
    ) -> None:
        self._as_worker = WorkerService(options, secrets, dials=dials, models=lambda place: place.data_dir)
        self._certificate = certificate

    def command(self, place: Place) -> Command:
        """`python -m bench.crowd` with the environment of a worker."""
        env = {**self._as_worker.command(place).env, **python_path(), **trusting(self._certificate)}
        argv = (sys.executable, "-m", "bench.crowd", "--port", str(place.port))
        return Command(argv=argv, env=env)


class RoleService(Service):
    """`python -m bench.<role>`: the raw server, the hops of the control chain, the clients."""

    def __init__(
        self, name: str, *, onwards: Callable[[Place], int] | None = None, after: tuple[str, ...] = ()
    ) -> None:
        """`onwards` gives the port a hop copies to."""
        self.name = name
        self.after = after
        self.ready = _CALLED if name == "client" else _INFO
        self._onwards = onwards

    def command(self, place: Place) -> Command:
        """The module of the role and its port."""
        module = {"raw": "backend", "near": "hop", "far": "hop"}.get(self.name, self.name)
        argv = [sys.executable, "-m", f"bench.{module}", "--port", str(place.port)]
        if self._onwards is not None:
            argv += ["--to", str(self._onwards(place))]
        return Command(argv=tuple(argv), env=python_path())


class SecureService(Service):
    """`python -m bench.secure`: the raw server over TLS."""

    name = "secure"
    ready = LogReady(pattern=f"^{SERVING}$")

    def __init__(self, *, certificate: Certificate) -> None:
        self._certificate = certificate

    def command(self, place: Place) -> Command:
        """Its port and certificate."""
        argv = [sys.executable, "-m", "bench.secure", "--port", str(place.port)]
        argv += certificate_arguments(self._certificate)
        return Command(argv=tuple(argv), env=python_path())
