"""The drill: kill the replica that owns a tunnel in the middle of traffic, and see that the fleet comes back by itself.

| id            | holds when                                                                                       |
|---------------|--------------------------------------------------------------------------------------------------|
| ready         | every replica lists every worker as healthy and connected, its model ready                       |
| chat-local    | the owner answers from its own tunnel, and the same seed gives the same text twice               |
| chat-relayed  | the replica that does not own the worker gives that very text, the owner the same after as before |
| owner-killed  | of the streams in flight at the kill those over the dead replica end in a named error or cut, the |
|               | others complete; texts agree                                                                     |
| rehomed       | the survivor owns the worker, under a higher epoch                                               |
| chat-after    | the survivor answers from its own tunnel with the text known before                              |
| restarted     | the dead replica is back on its port as a new incarnation and sees the whole roster              |
| relayed-after | through the restarted replica, relayed, the text known before                                    |
| no-leaks      | counters are back at rest, everything stopped with status 0, no process carries the run's tag     |
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from blackstart.cluster.waiting import eventually
from blackstart.fleet.chat import Chat, Result
from blackstart.fleet.checks import NotReached, Step
from blackstart.fleet.services import model_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from blackstart.fleet.chat import PendingChat
    from blackstart.fleet.fleet import Fleet
    from blackstart.fleet.scrape import BackendStats

OWNER, SURVIVOR = 0, 1
STREAMS_A_WAY = 3  # by two replicas to two workers: 12 streams, half of them relayed
PACE = (
    20.0  # tokens a second: slow enough that all are under way at once, quick enough to end within the drill
)
TOKENS = 80
SHORT = 16


@dataclass(frozen=True)
class Way:
    """Through which replica to which worker."""

    via: int
    worker: int

    @property
    def route(self) -> str:
        """Worker N's tunnel is held by replica N when the streams begin."""
        return "local" if self.via == self.worker else "relayed"


WAYS = tuple(Way(via, worker) for via in (OWNER, SURVIVOR) for worker in (0, 1))


class Drill:
    """One drill over a fleet that is starting. `steps` are its checks, to be made in order."""

    def __init__(self, fleet: Fleet, *, seed: int, tagged: Callable[[], list[str]]) -> None:
        """`tagged` ends what the fleet shares and names the processes that still carry the run's tag."""
        self.fleet = fleet
        self.seed = seed
        self._tagged = tagged
        self._reference: dict[int, str] = {}
        self._epoch: int | None = None

    def steps(self) -> tuple[Step, ...]:
        """The nine checks."""
        return (
            Step(id="ready", make=self.ready),
            Step(id="chat-local", make=self.chat_local),
            Step(id="chat-relayed", make=self.chat_relayed),
            Step(id="owner-killed", make=self.owner_killed),
            Step(id="rehomed", make=self.rehomed),
            Step(id="chat-after", make=self.chat_after),
            Step(id="restarted", make=self.restarted),
            Step(id="relayed-after", make=self.relayed_after),
            Step(id="no-leaks", make=self.no_leaks),
        )

    def ready(self) -> str:
        """Start the fleet; worker N's tunnel at replica N."""
        fleet = self.fleet
        fleet.start()
        fleet.move(1, to=SURVIVOR)
        fleet.wait_owner(0, OWNER)
        self._ready = True
        nodes = len(fleet.nodes)
        return f"{len(fleet.frontends)} replicas and {len(fleet.workers)} workers, {nodes} processes, every tunnel up"

    def chat_local(self) -> str:
        """The owner, its own tunnel, the same seed twice; the references for later come from here."""
        self._need_ready()
        fleet = self.fleet
        for worker in (0, 1):
            chat = _answered(
                self._short(via=worker, worker=worker), route="local", node=fleet.node_id(worker)
            )
            again = _answered(
                self._short(via=worker, worker=worker), route="local", node=fleet.node_id(worker)
            )
            assert chat.text == again.text, f"one seed gave two texts: {chat.text!r} and {again.text!r}"
            whole = fleet.chat(via=worker, model=model_of(worker), seed=self.seed, max_tokens=TOKENS)
            assert whole.ok, f"no reference for {model_of(worker)}: {whole}"
            assert whole.text.startswith(chat.text), (
                f"a longer answer begins otherwise: {whole.text!r}, {chat.text!r}"
            )
            self._reference[worker] = whole.text
        return (
            f"worker-0 answered {SHORT} tokens twice alike through frontend-{OWNER}, which holds its tunnel"
        )

    def chat_relayed(self) -> str:
        """The replica that does not own the worker."""
        self._need_reference()
        self._relayed(via=SURVIVOR, owner=OWNER)
        return f"frontend-{SURVIVOR} does not hold worker-0's tunnel and gave the same text through frontend-{OWNER}"

    def owner_killed(self) -> str:
        """All streams under way, by the backends' own count; then SIGKILL."""
        self._need_reference()
        fleet = self.fleet
        before = [fleet.backend_stats(worker) for worker in (0, 1)]
        owner = fleet.owner_of(0)
        assert owner is not None, "nobody owns worker-0 before the kill"
        streams = [(way, self._stream(way)) for way in WAYS for _ in range(STREAMS_A_WAY)]
        try:
            self._wait_active(before)
            _need_in_flight(streams)
            self._epoch = owner.epoch
            fleet.frontend(OWNER).kill()
            within = fleet.timings.request_s + fleet.timings.keepalive_timeout_s
            ended = [(way, stream.wait(within=within)) for way, stream in streams]
        finally:
            for _, stream in streams:
                stream.hang_up()
        for way, chat in ended:
            self._judge(way, chat)
        self._answered_once(before)
        tally = Counter(f"{way.route} via frontend-{way.via} {chat.result}" for way, chat in ended)
        return f"{len(ended)} streams at the kill: " + ", ".join(
            f"{count} {what}" for what, count in sorted(tally.items())
        )

    def rehomed(self) -> str:
        """The production query names the survivor, under a higher epoch."""
        if self._epoch is None:
            raise NotReached("no owner was killed")
        owner = self.fleet.wait_owner(0, SURVIVOR)
        assert owner.epoch > self._epoch, f"epoch {owner.epoch} is not above {self._epoch}"
        return f"worker-0 is held by frontend-{SURVIVOR} under epoch {owner.epoch}, it was {self._epoch}"

    def chat_after(self) -> str:
        """The survivor answers by itself."""
        self._need_killed()
        fleet = self.fleet
        chat = _answered(self._short(via=SURVIVOR, worker=0), route="local", node=fleet.node_id(0))
        self._same(chat, 0)
        return f"frontend-{SURVIVOR} answered from its own tunnel with the text known before"

    def restarted(self) -> str:
        """The same port, nothing kept on its disk, a new incarnation."""
        self._need_killed()
        fleet = self.fleet
        node = fleet.frontend(OWNER)
        port, incarnation, pid = node.port, node.incarnation, node.pid
        node.restart(cold=True)
        fleet.wait_ready()
        assert node.port == port, f"port {node.port}, it was {port}"
        assert node.incarnation == incarnation + 1, f"incarnation {node.incarnation}, it was {incarnation}"
        assert node.pid != pid, f"pid {pid} again"
        return f"frontend-{OWNER} is back on port {port} as incarnation {node.incarnation} and lists every worker"

    def relayed_after(self) -> str:
        """Through the replica that came back."""
        self._need_killed()
        if not self.fleet.frontend(OWNER).alive:
            raise NotReached("the replica is not back")
        self._relayed(via=OWNER, owner=SURVIVOR)
        return f"frontend-{OWNER} relayed to worker-0 through frontend-{SURVIVOR} with the text known before"

    def no_leaks(self) -> str:
        """At rest, stopped with status 0, nothing left."""
        self._need_ready()
        fleet = self.fleet
        for index in range(len(fleet.frontends)):
            eventually(
                lambda index=index: fleet.metrics(index).value("blackstart_streams_open"),  # type: ignore[misc]  # bound now
                0.0,
                within=fleet.timings.keepalive_timeout_s + fleet.timings.drain_wait_s,
            )
        active = {model_of(worker): fleet.backend_stats(worker).active for worker in (0, 1)}
        assert not any(active.values()), f"generations still run: {active}"
        fleet.stop()
        fleet.close()
        left = self._tagged()
        assert not left, f"{len(left)} processes carry the run's tag: {'; '.join(left[:5])}"
        return "no stream open, no generation active, every process stopped with status 0, none left"

    def _short(self, *, via: int, worker: int) -> Chat:
        return self.fleet.chat(via=via, model=model_of(worker), seed=self.seed, max_tokens=SHORT)

    def _stream(self, way: Way) -> PendingChat:
        return self.fleet.open_chat(
            via=way.via, model=model_of(way.worker), seed=self.seed, max_tokens=TOKENS, pace=PACE, stream=True
        )

    def _relayed(self, *, via: int, owner: int) -> None:
        fleet = self.fleet
        fleet.wait_owner(0, owner)
        chat = _answered(self._short(via=via, worker=0), route="relayed", node=fleet.node_id(0))
        after = fleet.owner_index(0)
        assert after == owner, (
            f"worker-0 moved to frontend-{after} meanwhile: whether it was relayed is not known"
        )
        self._same(chat, 0)

    def _same(self, chat: Chat, worker: int) -> None:
        known = self._reference[worker]
        assert chat.text == known[: len(chat.text)], (
            f"another text than before: {chat.text!r}, known {known!r}"
        )

    def _wait_active(self, before: list[BackendStats]) -> None:
        fleet = self.fleet
        wanted = len(WAYS) * STREAMS_A_WAY // 2
        for worker in (0, 1):
            assert before[worker].active == 0, f"{model_of(worker)} was busy before: {before[worker]}"

        def active_together() -> list[int]:
            """Each generation begins once, so the first backend's are the same ones before and after the second's are read."""
            return [fleet.backend_stats(worker).active for worker in (0, 1, 0)]

        eventually(
            active_together,
            [wanted, wanted, wanted],
            within=fleet.timings.stream_open_s + fleet.timings.backend_connect_s,
            watch=fleet.watch,
        )

    def _judge(self, way: Way, chat: Chat) -> None:
        known = self._reference[way.worker]
        where = f"the {way.route} stream via frontend-{way.via}"
        assert chat.result is not None, f"{where} has no end"
        assert known.startswith(chat.text), f"{where} said {chat.text!r}, known {known!r}"
        if chat.result is Result.COMPLETE:
            assert chat.text == known, (
                f"{where} reads complete and lacks {len(known) - len(chat.text)} characters"
            )
        if chat.result is Result.ERROR:
            assert chat.error not in {"", "unnamed", "malformed"}, (
                f"{where} ended in an error without a name: {chat}"
            )
        if way == Way(SURVIVOR, SURVIVOR):
            assert chat.ok, f"{where} never depended on the killed replica and ended {chat}"
        else:
            assert not chat.ok, f"{where} reads complete over the killed replica: it was not in flight"

    def _answered_once(self, before: list[BackendStats]) -> None:
        for worker in (0, 1):
            asked = sum(way.worker == worker for way in WAYS) * STREAMS_A_WAY
            started = self.fleet.backend_stats(worker).started - before[worker].started
            assert started == asked, f"{model_of(worker)} began {started} generations for {asked} requests"

    _ready = False

    def _need_ready(self) -> None:
        if not self._ready:
            raise NotReached("the fleet is not ready")

    def _need_reference(self) -> None:
        self._need_ready()
        if len(self._reference) < 2:
            raise NotReached("there is no text to compare with")

    def _need_killed(self) -> None:
        self._need_reference()
        if self._epoch is None:
            raise NotReached("no owner was killed")


def _need_in_flight(streams: list[tuple[Way, PendingChat]]) -> None:
    """Read right before the kill: what has ended by then says nothing about it."""
    ended = [f"the {way.route} stream via frontend-{way.via}" for way, stream in streams if stream.ended]
    assert not ended, f"{len(ended)} of {len(streams)} had ended before the kill: {', '.join(ended[:3])}"


def _answered(chat: Chat, *, route: str, node: str) -> Chat:
    assert chat.ok, f"no answer: {chat}"
    assert (chat.route, chat.node) == (route, node), (
        f"went {chat.route} to {chat.node}, wanted {route} to {node}"
    )
    assert chat.text.strip(), f"an empty text: {chat}"
    return chat
