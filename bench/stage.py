"""Everything a bench needs, up and found out about: replicas, workers, controls and clients, and how to speak to each."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from bench import bulk
from bench.bulk import INFO, Request
from bench.certificate import make_certificate
from bench.remote import Remote
from bench.services import (
    CONTROL,
    DOORS,
    CrowdService,
    ModelWorkerService,
    ReplicaService,
    RoleService,
    SecureService,
    tunnel_port,
)
from blackstart.cluster.cluster import Cluster
from blackstart.cluster.waiting import eventually
from blackstart.core.commands import SetUpFailed
from blackstart.core.topology import Group, Topology
from blackstart.fleet.admin import mint
from blackstart.fleet.options import FleetOptions
from blackstart.fleet.scrape import scrape
from blackstart.fleet.services import Secrets
from inference_fleet.store import migrate_sync

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from bench.stands import Stand
    from blackstart.cluster.node import Node
    from blackstart.fleet.rehearsal import Rehearsal

OTHER: dict[str, str] = {"takeover": "asgi", "asgi": "takeover"}


@dataclass(frozen=True)
class Path:
    """Where a client connects, which processes work for it, and the certificate that is shown there, if one is."""

    port: int
    pids: dict[str, int]
    cert: str | None = None


class Stage:
    """The processes of one bench; a context manager that starts them and ends every one."""

    def __init__(self, rehearsal: Rehearsal, stands: Sequence[Stand], *, crowds: int = 0) -> None:
        """`crowds`: processes of many idle tunnels for each stand, and a replica of its own that holds them."""
        self.stands = tuple(stands)
        self.secrets = Secrets()
        self._stack = ExitStack()
        self._backends: dict[Stand, int] = {}
        self._stands = {
            carrier: [stand for stand in stands if stand.carrier == carrier]
            for carrier in dict.fromkeys(stand.carrier for stand in stands)
        }
        self._carriers = tuple(self._stands)
        self._database = rehearsal.infra.database(prepare=migrate_sync)
        options = FleetOptions(
            frontends=len(self._carriers), workers=len(self.stands), preset="production", advertise=True
        )
        self.timings = options.timings
        folder = rehearsal.run.spec_dir(rehearsal.spec)
        secure = any(stand.wire == "tls" for stand in stands)
        self._certificate = make_certificate(folder / "certificate") if secure else None
        self.cluster = Cluster(
            Topology(groups=tuple(self._groups(options, crowds=crowds)), budgets=self._budgets()),
            run=rehearsal.run,
            spawner=rehearsal.spawner,
            journal=rehearsal.journal,
            spec=rehearsal.spec,
        )

    def __enter__(self) -> Self:
        """Start everything, wait until every door leads to its worker, and see which carrier runs."""
        try:
            self._stack.enter_context(self.cluster)
            for stand in self.stands:
                self._backends[stand] = self._found(stand)
            self.require_carriers()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End everything; a process that ended by itself is an error, unless another is under way already."""
        self._stack.__exit__(kind, error, trace)

    @property
    def patience_s(self) -> float:
        """How long one step may take before it counts as hung."""
        return self.timings.request_s

    def client(self, number: int) -> Remote:
        """One of the two client processes."""
        node = self.cluster.node("client", number)
        return Remote(node.name, node.port)

    def owner(self, stand: Stand) -> Node:
        """The replica that holds the stand's tunnel."""
        return self._replica("owner", stand)

    def control(self, group: str, stand: Stand) -> Remote:
        """How to speak to the replica of a stand in a group."""
        node = self._replica(group, stand)
        return Remote(node.name, node.place.ports[CONTROL])

    def crowd(self, stand: Stand, number: int = 0) -> Remote:
        """The many workers of a stand, or one of the processes they are."""
        node = self.cluster.node("crowd", self.stands.index(stand) + number * len(self.stands))
        return Remote(node.name, node.port)

    def path(self, stand: Stand, *, relayed: bool) -> Path:
        """Through the door of the owner, or of the replica that has to ask it."""
        worker = self.cluster.node("worker", self.stands.index(stand))
        pids = {
            "backend": self._pid_behind(self._backends[stand]),
            "worker": worker.pid,
            "owner": self.owner(stand).pid,
            "client": self.cluster.node("client", 0).pid,
        }
        group = "relay" if relayed else "owner"
        if relayed:
            pids["relay"] = self._replica(group, stand).pid
        door = DOORS + self._stands[stand.carrier].index(stand)
        return Path(self._replica(group, stand).place.ports[door], pids)

    def web_path(self, stand: Stand, *, relayed: bool) -> Path:
        """The production listener of the same replica, for HTTP."""
        node = self._replica("relay" if relayed else "owner", stand)
        return replace(self.path(stand, relayed=relayed), port=node.port)

    def idle_port(self, stand: Stand) -> int:
        """Where the replica of the idle tunnels takes HTTP; it relays to the owner."""
        return self._replica("memory", stand).port

    def raw(self) -> Path:
        """Straight to a backend, the first control."""
        node = self.cluster.node("raw", 0)
        return Path(node.port, {"backend": node.pid, "client": self.cluster.node("client", 0).pid})

    def raw_tls(self) -> Path:
        """The same over TLS; only where a stand has it."""
        assert self._certificate is not None, "no stand has TLS"
        node = self.cluster.node("secure", 0)
        pids = {"backend": node.pid, "client": self.cluster.node("client", 0).pid}
        return Path(node.port, pids, str(self._certificate.cert))

    def chain(self) -> Path:
        """Through two hops that only copy, the second control."""
        near, far = self.cluster.node("near", 0), self.cluster.node("far", 0)
        return Path(near.port, {**self.raw().pids, "hop-0": near.pid, "hop-1": far.pid})

    def backend_port(self, stand: Stand) -> int:
        """Where the model process of a stand listens itself."""
        return self._backends[stand]

    def mint_key(self) -> str:
        """An API key that every replica accepts."""
        return mint(self.owner(self.stands[0]).url, self.secrets, within=self.timings.start_s).api_key

    def routes(self, stand: Stand, *, relayed: bool) -> dict[str, int]:
        """How many streams went which way through a door."""
        group = "relay" if relayed else "owner"
        answer: dict[str, int] = self.control(group, stand).call(
            "routes", patience_s=self.timings.handshake_s, model=stand.model
        )
        return answer

    def loop(self) -> str:
        """The event loop the replicas run on."""
        answer: dict[str, str] = self.control("owner", self.stands[0]).call(
            "hello", patience_s=self.timings.handshake_s
        )
        return answer["loop"]

    def carriers(self, group: str = "owner") -> dict[str, dict[str, float]]:
        """Tunnels by carrier at each replica of a group, from its own metrics."""
        found = {}
        for index, carrier in enumerate(self._carriers):
            seen = scrape(self.cluster.node(group, index).url, within=self.timings.handshake_s)
            found[carrier] = {
                path: seen.value("blackstart_tunnel_carrier", path=path) for path in (carrier, OTHER[carrier])
            }
        return found

    def require_carriers(self) -> None:
        """Each replica holds its tunnels by the carrier that was asked for, by its own metrics; else it is an error."""
        for carrier, seen in self.carriers().items():
            wanted = float(len(self._stands[carrier]))
            if seen != {carrier: wanted, OTHER[carrier]: 0.0}:
                raise SetUpFailed(
                    "--carrier",
                    carrier,
                    f"did not run: tunnels at the replica by carrier are {seen}, wanted {wanted:g} of {carrier}",
                    remedy=f"--carrier {OTHER[carrier]}",
                )

    def _found(self, stand: Stand) -> int:
        """Wait until both doors of a stand lead to its model process; gives that process's port."""
        port = 0
        for group in ("owner", "relay"):
            control = self.control(group, stand)

            def look(control: Remote = control) -> Any:
                return control.call("candidate", patience_s=self.timings.handshake_s, model=stand.model)

            found = eventually(
                look,
                lambda seen: seen is not None,
                within=self.timings.start_s + self.timings.backend_start_s,
                watch=self.cluster.watch,
            )
            port = int(found["port"])
        return port

    def _pid_behind(self, port: int) -> int:
        with bulk.connect(port, within=self.timings.handshake_s) as sock:
            sock.sendall(Request(INFO).encode())
            return bulk.read_reply(sock).count

    def _replica(self, group: str, stand: Stand) -> Node:
        return self.cluster.node(group, self._carriers.index(stand.carrier))

    def _dials(self, group: str, index: int) -> str:
        stand = self.stands[index % len(self.stands)]
        place = self._replica(group, stand).place
        scheme = "https" if stand.wire == "tls" else "http"
        return f"{scheme}://{place.host}:{tunnel_port(place, stand)}"

    def _budgets(self) -> dict[str, float]:
        timings = self.timings
        return {"ready": timings.start_s + timings.backend_start_s, "death": timings.shutdown_s}

    def _groups(self, options: FleetOptions, *, crowds: int) -> list[Group]:
        certificate = self._certificate

        def replicas(name: str, after: tuple[str, ...] = ()) -> Group:
            service = ReplicaService(
                name,
                options,
                self.secrets,
                database_url=lambda: self._database.url,
                certificate=certificate,
                stands=self._stands,
                after=after,
            )
            return Group(service=service, count=len(self._carriers))

        workers = ModelWorkerService(
            options,
            self.secrets,
            dials=lambda index: self._dials("owner", index),
            stands=self.stands,
            certificate=certificate,
        )
        groups = [
            Group(service=RoleService("raw")),
            Group(
                service=RoleService("far", onwards=lambda place: place.others["raw-0"].port, after=("raw",))
            ),
            Group(
                service=RoleService("near", onwards=lambda place: place.others["far-0"].port, after=("far",))
            ),
            Group(service=RoleService("client"), count=2),
            replicas("owner"),
            replicas("relay", after=("owner",)),
            Group(service=workers, count=len(self.stands)),
        ]
        if certificate is not None:
            groups.append(Group(service=SecureService(certificate=certificate)))
        if crowds:
            crowd = CrowdService(
                options,
                self.secrets,
                dials=lambda index: self._dials("memory", index),
                certificate=certificate,
            )
            groups += [replicas("memory"), Group(service=crowd, count=crowds * len(self.stands))]
        return groups
