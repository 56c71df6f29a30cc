"""The end of a run, for whoever reads the terminal: where the evidence is, what it ran on, and how to see it again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blackstart.pytest_plugin.host import host_of
from blackstart.pytest_plugin.options import options_of

if TYPE_CHECKING:
    import pytest

    from blackstart.pytest_plugin.host import Host
    from blackstart.pytest_plugin.session import Judging

_MOST_FAILURES = 20
_SLOWEST = 3


class Summary:
    """Prints its section where a blackstart marker was collected or a run was made; else nothing."""

    def __init__(self, config: pytest.Config, judging: Judging) -> None:
        self._config = config
        self._judging = judging

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """The section."""
        host = host_of(self._config)
        ledger = self._judging.ledger
        if not host.started and not ledger.collected:
            return
        write = terminalreporter.write_line
        terminalreporter.section("blackstart")
        if host.started:
            write(f"run        {host.run.dir}")
        for line in self._ran_on():
            write(f"ran on     {line}")
        options = options_of(self._config)
        write(f"settings   seed {options.seed}, preset {options.preset}, time factor {options.time_factor:g}")
        for line in self._slowest():
            write(f"budget     {line}")
        if self._judging.tally is not None:
            for line in self._judging.tally.lines():
                write(f"tally      {line}")
        for nodeid in [record.nodeid for record in ledger.specs.values() if record.outcome == "failed"][
            :_MOST_FAILURES
        ]:
            write(f"reproduce  {options.reproducing(nodeid, command=self._command())}")
        for line in self._inconclusive():
            write(f"INCONCLUSIVE {line}", yellow=True)
        for line in self._judging.against:
            write(f"FAILED     {line}", red=True)

    def _command(self) -> str:
        """`ci/test` where the project has it, else pytest itself."""
        return "ci/test" if (self._config.rootpath / "ci" / "test").is_file() else "pytest"

    def _inconclusive(self) -> list[str]:
        """The failures the machine may have caused, named and counted: they are failures to pytest all the same."""
        found = [record for record in self._judging.ledger.specs.values() if record.inconclusive]
        told = [
            f"{record.nodeid}: {record.inconclusive} while it failed" for record in found[:_MOST_FAILURES]
        ]
        return [*told, f"{len(found)} of the failed specs prove nothing either way"] if found else []

    def _ran_on(self) -> list[str]:
        """How many specs ran, on which Postgres, and how many of the fleets had theirs in a container."""
        ledger = self._judging.ledger
        outcomes = [record.outcome for record in ledger.specs.values()]
        clusters = [record for record in ledger.specs.values() if record.facts.get("cluster")]
        told = ", ".join(f"{outcomes.count(each)} {each}" for each in ("passed", "failed", "skipped"))
        lines = [f"{len(outcomes)} specs: {told}; {len(clusters)} of them on clusters of real processes"]
        host = host_of(self._config)
        in_container = ledger.on_container
        if host.started:
            lines += self._servers(host)
        if in_container or host.started:
            lines.append(
                f"{len(in_container)} cluster specs on Postgres in a container: {self._engine(bool(in_container))}"
            )
        return lines

    def _servers(self, host: Host) -> list[str]:
        """The run's Postgres and the one beside it; where nobody asked for any, none of their drivers is loaded."""
        option = options_of(self._config).postgres
        asked = host.run.facts()["providers"]
        if not asked:
            from blackstart.infra.choice import never_asked, parse_choice  # noqa: PLC0415 - only where a run was made

            return [never_asked(parse_choice(option))]
        from blackstart.infra import Infra  # noqa: PLC0415 - brings a driver
        from blackstart.infra.shared import BESIDE, NODE  # noqa: PLC0415 - see above

        beside = [("container", BESIDE)] if BESIDE in asked else []
        return [
            Infra(host.run, host.spawner, wanted, name=name).report()
            for wanted, name in [(option, NODE), *beside]
        ]

    def _engine(self, used: bool) -> str:  # noqa: FBT001 - one fact, of this class alone
        from blackstart.cluster.capabilities import lacking  # noqa: PLC0415 - asks the engine, where one was wanted

        if not used:
            return lacking("container") or "an engine is here, none was asked for"
        return lacking("container") or _engine_and_image()

    def _slowest(self) -> list[str]:
        """The waits that came nearest to their budget: a creeping one is seen before it fails."""
        host = host_of(self._config)
        if not host.started:
            return []
        from blackstart.record import read_journal  # noqa: PLC0415 - only where a run was made

        waits = [event for event in read_journal(host.run.dir) if event.kind == "wait"]
        waits = [event for event in waits if event.data.get("wait") == "eventually"]
        waits.sort(key=lambda event: -event.data["used_percent"])
        return [
            f"{event.data['used_percent']} % of {event.data['budget_s']:g} s used by {event.spec or '-'}: {event.data['what']}"
            for event in waits[:_SLOWEST]
        ]


def _engine_and_image() -> str:
    from blackstart.infra.choice import image_name  # noqa: PLC0415 - only where a fleet was in a container
    from blackstart.infra.engine import find_engine  # noqa: PLC0415 - see above

    engine = find_engine()
    return (
        engine
        if isinstance(engine, str)
        else f"engine {engine.version} at {engine.address}, image {image_name()}"
    )
