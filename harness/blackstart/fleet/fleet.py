"""The embedded fleet as a cluster: replicas and workers by number, and every question a rehearsal asks of them.

Every window a spec waits comes from `fleet.timings`, which are the very timings the processes run on.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from blackstart.cluster.cluster import Cluster
from blackstart.cluster.waiting import eventually
from blackstart.faults.clock import ClockFile
from blackstart.faults.fault import standing
from blackstart.fleet.admin import Admin, mint
from blackstart.fleet.chat import Chat, PendingChat, body_of
from blackstart.fleet.http import client_of
from blackstart.fleet.records import Records
from blackstart.fleet.roads import PeerRoads
from blackstart.fleet.roster import RosterLook, RosterProbe
from blackstart.fleet.scrape import BackendStats, Scrape, read_stats, scrape
from blackstart.fleet.services import Secrets, model_of, topology_of, write_models
from blackstart.infra.errors import InfraError
from blackstart.net.balancer import Action, Balancer
from inference_fleet.store import migrate_sync

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    import httpx2

    from blackstart.cluster.node import Node
    from blackstart.core.topology import Group, Place, Service
    from blackstart.faults import Fault, Standing
    from blackstart.fleet.options import FleetOptions
    from blackstart.infra import Infra, PostgresServer
    from blackstart.process import Spawner
    from blackstart.record import Journal, Run
    from inference_fleet.cluster import Owner
    from inference_fleet.settings import Timings

PROMPT = "Tell me how a dark grid is brought back, step by step."


class Fleet(Cluster):
    """Replicas over one database, workers that dial a balancer, one administrator. `with Fleet(...) as fleet:`."""

    def __init__(
        self, options: FleetOptions, *, run: Run, spawner: Spawner, journal: Journal, infra: Infra, spec: str
    ) -> None:
        """Makes the database and the balancer; `start` brings up the processes."""
        self.options = options
        self.secrets = Secrets()
        self._admin: Admin | None = None
        self._records: Records | None = None
        self._probes: dict[int, RosterProbe] = {}
        self._roads = PeerRoads()
        # before any address is leased: the run's server may come up for this, and it outlives this fleet
        self.server = infra.own_server(spec=spec) if options.own_postgres else None
        self._database = infra.database(prepare=migrate_sync) if self.server is None else None
        self._own_database = "" if self.server is None else self.server.database(prepare=migrate_sync)
        topology = topology_of(
            options,
            self.secrets,
            database_url=lambda: self.database_url,
            dials=self._dials,
            models=self._models,
            peer_address=self._roads.address_of,
            tls_dir=run.spec_dir(spec) / "tls",
        )
        super().__init__(topology, run=run, spawner=spawner, journal=journal, spec=spec)
        try:
            self.clocks = {name: self._clock(name) for name in options.faketime}
            for node in self.frontends if options.peer_links else ():
                self._roads.lay(node, spawner=spawner, run=run, spec=spec)
            self.balancer = Balancer(spawner, run, spec=spec, backends=self._addresses()[:1], later=True)
        except BaseException:
            self._roads.close()
            self._release()
            raise

    @property
    def database_url(self) -> str:
        """What the replicas are told; through a link that can be cut where the server is the fleet's own."""
        if self._database is not None:
            return self._database.url
        assert self.server is not None
        return self.server.url(self._own_database)

    @property
    def postgres(self) -> PostgresServer:
        """The server the database lies on."""
        if self._database is not None:
            return self._database.server
        assert self.server is not None
        return self.server.server

    @property
    def timings(self) -> Timings:
        """Every window of every wait comes from here."""
        return self.options.timings

    @property
    def frontends(self) -> tuple[Node, ...]:
        """The replicas."""
        return self.group("frontend")

    @property
    def workers(self) -> tuple[Node, ...]:
        """The workers that serve models."""
        return self.group("worker")

    @property
    def worker_service(self) -> Service:
        """How this fleet's workers are started."""
        return next(group.service for group in self.topology.groups if group.service.name == "worker")

    def frontend(self, index: int) -> Node:
        """Replica number `index`; one that is not there is an error, never the first."""
        return self.node("frontend", index)

    def worker(self, index: int) -> Node:
        """Worker number `index`; one that is not there is an error, never the first."""
        return self.node("worker", index)

    def start(self) -> None:
        """Bring everything up, every worker's tunnel at replica 0, and wait until each replica can use each worker."""
        self.prefer(0)
        super().start()
        self.spread_dials()
        self._roads.wait_ready()
        self.wait_ready()

    def end(self) -> None:
        """Heal what was cut, end every process, give back balancer, database and server. A second time is fine."""
        try:
            self._roads.heal_all()
        finally:
            try:
                super().end()
            finally:
                self._give_back()

    def wait_ready(self) -> None:
        """Return when every living replica lists every living worker as healthy and connected, all its models ready."""
        models = 1 + len(self.options.commands)
        names = [node.name for node in self.workers if node.alive]
        within = self.timings.start_s + self.timings.backend_start_s
        for index, frontend in enumerate(self.frontends):
            if frontend.alive:
                eventually(
                    self.probe(index),
                    lambda look: all((node := look.node(name)) and node.serves(models) for name in names),
                    within=within,
                    watch=self.watch,
                )

    def prefer(self, frontend: int) -> None:
        """From now on the balancer gives every new connection to this replica alone."""
        self.balancer.set_backends([self.frontend(frontend).place.address])

    def spread_dials(self) -> None:
        """From now on the balancer gives new connections to all replicas in turn."""
        self.balancer.set_backends(self._addresses())

    def move(self, worker: int, *, to: int) -> None:
        """Cut a worker's tunnel so that it dials again, and have it dial the replica named."""
        self.prefer(to)
        try:
            self.balancer.cut(self.tunnel_path(worker))
            self.wait_owner(worker, to)
        finally:
            self.spread_dials()

    def wait_owner(self, worker: int, frontend: int) -> Owner:
        """Return when the production query names that replica as owner."""
        timings = self.timings
        wanted = self.frontend(frontend).name

        def owner() -> Owner | None:
            return self.owner_of(worker)

        def is_the_one(seen: Owner | None) -> bool:
            return seen is not None and seen.instance_id == wanted

        within = (
            timings.instance_liveness_s
            + timings.keepalive_timeout_s
            + timings.reconnect_backoff_max_s
            + timings.handshake_s
        )
        found = eventually(owner, is_the_one, within=within, watch=self.watch)
        assert found is not None
        return found

    def tunnel_path(self, worker: int) -> str:
        """The pattern of the path a worker dials its tunnel on."""
        return f"^/api/node/{self.node_id(worker)}/tunnel$"

    def block_tunnel(self, worker: int) -> Any:
        """Have the balancer refuse the worker's dials, registration and heartbeats passing; gives what `lift` takes."""
        rule = self.balancer.block(self.tunnel_path(worker))
        self.balancer.cut(self.tunnel_path(worker))
        return rule

    def lift(self, rule: Any) -> None:
        """Take a block away."""
        self.balancer.lift(rule)

    def cut_peer(self, a: int, b: int, *, action: Action = Action.RESET) -> Standing:
        """Cut the road between two replicas both ways, live connections too, until `heal_peer`; workers notice nothing.

        It must have been met by then: a cut that nobody dialled into is `FaultNotConfirmed` when it is healed.
        """
        return self._roads.cut(self.frontend(a), self.frontend(b), action=action, stand=self._stand)

    def heal_peer(self, a: int, b: int) -> None:
        """Take the cut between two replicas away, once it was seen to be met; the next dial goes through."""
        self._roads.heal(a, b)

    def probe(self, via: int) -> RosterProbe:
        """The roster probe of one replica; the same one each time, so that it remembers."""
        if via not in self._probes:
            frontend = self.frontend(via)
            self._probes[via] = RosterProbe(frontend.name, lambda: self.get("/api/nodes", via=via))
        return self._probes[via]

    def roster(self, *, via: int) -> RosterLook:
        """One look at a replica's roster; an error is part of the look."""
        return self.probe(via)()

    def status(self, worker: int, *, via: int) -> str:
        """A worker's status as one replica tells it, or a text no status equals."""
        return self.roster(via=via).value(self.worker(worker).name, "status")

    def presence(self, worker: int, *, via: int) -> str:
        """A worker's presence as one replica tells it, or a text no presence equals."""
        return self.roster(via=via).value(self.worker(worker).name, "presence")

    def node_id(self, worker: int) -> str:
        """The id the fleet gave to a worker."""
        rows = self.records.rows("SELECT id FROM nodes WHERE name = %(name)s", name=self.worker(worker).name)
        if len(rows) != 1:
            raise LookupError(
                f"{self.worker(worker).name}: has {len(rows)} rows in nodes; try: once it has registered"
            )
        return str(rows[0]["id"])

    def owner_of(self, worker: int) -> Owner | None:
        """The production query: the live replica holding the worker's tunnel, with its epoch."""
        return self.records.owner(self.node_id(worker))

    def owner_index(self, worker: int) -> int | None:
        """The owner as a replica's number; None while nobody holds the tunnel."""
        owner = self.owner_of(worker)
        return None if owner is None else self.node(owner.instance_id).index

    def owner_row(self, worker: int) -> dict[str, Any] | None:
        """The ownership row as it lies in the database, its owner dead or alive."""
        return self.records.owner_row(self.node_id(worker))

    def worker_environ(self, worker: int) -> dict[str, str]:
        """The environment a worker really has, from the kernel: what was meant for it proves nothing."""
        return self.worker(worker).handle.environ

    def backend_stats(self, worker: int) -> BackendStats:
        """The worker's model process's own counters, read on its loopback."""
        model = model_of(self.worker(worker).index)
        rows = self.records.rows(
            "SELECT port FROM node_models WHERE node_id = %(node)s AND name = %(model)s",
            node=self.node_id(worker),
            model=model,
        )
        if not rows:
            raise LookupError(f"{model}: has no row in node_models; try: once its worker is ready")
        return read_stats(int(rows[0]["port"]), within=self.timings.backend_connect_s)

    def metrics(self, via: int) -> Scrape:
        """One scrape of a replica."""
        return scrape(self.frontend(via).url, within=self.timings.handshake_s)

    def get(self, path: str, *, via: int, signed_in: bool = True) -> httpx2.Response:
        """`GET` at a replica, with the administrator's session unless told otherwise."""
        headers = self.admin.session if signed_in else {}
        with client_of(self.frontend(via).url, within=self._answer_s, headers=headers) as client:
            return client.get(path)

    def chat(self, *, via: int, model: str = "babbler-0", **options: Any) -> Chat:
        """One chat request to its end; `options` are those of `open_chat`."""
        pending = self.open_chat(via=via, model=model, **options)
        return pending.wait(within=self.timings.request_s + self.timings.stream_open_s)

    def open_chat(
        self,
        *,
        via: int,
        model: str = "babbler-0",
        prompt: str = PROMPT,
        stream: bool = False,
        max_tokens: int = 16,
        seed: int | None = None,
        pace: float | None = None,
        headers: dict[str, str] | None = None,
        **more: Any,
    ) -> PendingChat:
        """A chat request under way. `pace` is in tokens a second and can only slow the model down."""
        body = body_of(
            model,
            prompt,
            stream=stream,
            max_tokens=max_tokens,
            seed=seed,
            pace_tokens_per_second=pace,
            **more,
        )
        return PendingChat(
            self.frontend(via).url,
            {**self.admin.bearer, **(headers or {})},
            body,
            within=self.timings.request_s,
        )

    @property
    def _answer_s(self) -> float:
        """A replica answers within this, also when it first waits for a database that is not there."""
        timings = self.timings
        return timings.database_connect_s + timings.database_statement_s + timings.handshake_s

    @property
    def admin(self) -> Admin:
        """The administrator, minted at the first living replica when first asked for."""
        if self._admin is None:
            first = next(node for node in self.frontends if node.alive)
            self._admin = mint(first.url, self.secrets, within=self.timings.start_s)
        return self._admin

    @property
    def records(self) -> Records:
        """The fleet's database, asked the way the replicas ask it."""
        if self._records is None:
            direct = self.database_url if self.server is None else self.server.direct_url(self._own_database)
            self._records = Records(direct, timings=self.timings)
        return self._records

    def _give_back(self) -> None:
        if self._records is not None:
            self._records.close()
            self._records = None
        self.balancer.close()
        self._roads.close()
        if self.server is not None:
            self.server.close()
        elif self._database is not None and (trouble := self._database.drop()):
            raise InfraError("database", self._database.name, wrong=trouble, remedy="drop it by hand")

    def _clock(self, name: str) -> ClockFile:
        node = self.node(name)
        clock = ClockFile(self.run.spec_dir(self.spec) / f"{name}.clock")
        node.set_env(**clock.environment())
        return clock

    def _addresses(self) -> list[str]:
        return [node.place.address for node in self.frontends]

    def _stand(self, fault: Fault) -> AbstractContextManager[Standing]:
        """A fault that stands from here on and has until it is lifted to be met."""
        return standing(
            fault,
            journal=self.journal,
            ledger=self.spawner.ledger,
            user=os.getpid(),
            within_s=self.timings.handshake_s,
            spec=self.spec,
            late=True,
        )

    def _dials(self, worker: int) -> str:
        """Asked when a worker is about to start: by now the balancer, which came up beside the replicas, has to be there."""
        if self.options.spread:
            return self.frontends[worker % len(self.frontends)].url
        self.balancer.wait_ready()
        return self.balancer.url

    def _beside(self, stage: Sequence[Group]) -> Sequence[Callable[[], object]]:
        """The replicas answer when their workers start: who asks them is minted meanwhile."""
        mints = any("frontend" in group.service.after for group in stage)
        return [lambda: self.admin] if mints else []

    def _models(self, place: Place) -> Path:
        return write_models(place, place.data_dir.with_suffix(".models"), self.options)
