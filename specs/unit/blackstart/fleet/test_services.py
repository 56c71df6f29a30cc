"""What a fleet's processes are told, judged by the settings the processes themselves would read from it."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from blackstart.core.topology import Place, Topology
from blackstart.fleet.options import FleetOptions, OptionError
from blackstart.fleet.services import (
    MODEL_PORTS,
    FrontendService,
    Secrets,
    WorkerService,
    topology_of,
    write_models,
)
from inference_fleet.backends.manifest import Backend, read_manifest
from inference_fleet.settings import FrontendSettings, Timings, WorkerSettings

URL = "postgresql://postgres:pw@127.0.0.1:5555/fleet"


def _place(name: str, *ports: int) -> Place:
    return Place(name=name, index=int(name.rpartition("-")[2]), ports=ports, data_dir=Path("/run/x") / name)


def _frontend(options: FleetOptions, secrets: Secrets, name: str = "frontend-1") -> FrontendSettings:
    service = FrontendService(options, secrets, database_url=lambda: URL)
    return FrontendSettings.from_environ(service.command(_place(name, 7001)).env)


def _worker(options: FleetOptions, secrets: Secrets, *, agent: bool = False) -> WorkerSettings:
    service = WorkerService(
        options,
        secrets,
        dials=lambda index: f"http://127.0.0.1:900{index}",
        models=lambda _: Path("/models"),
        agent=agent,
    )
    place = _place(f"{service.name}-1", 7010, 7011, 7012, 7013)
    return WorkerSettings.from_environ(service.command(place).env)


@pytest.mark.holds("B-195")
def test_a_replicas_id_port_and_advertised_address_are_pinned_to_its_place() -> None:
    first = _frontend(FleetOptions(), Secrets())
    again = _frontend(FleetOptions(), Secrets())
    assert first.instance_id == "frontend-1"
    assert first.listen == ("127.0.0.1", 7001)
    assert first.advertise_address == "127.0.0.1:7001"
    assert (again.instance_id, again.listen, again.advertise_address) == (
        first.instance_id,
        first.listen,
        first.advertise_address,
    )


def test_a_replica_behind_a_link_advertises_the_link_and_listens_at_its_own_place() -> None:
    service = FrontendService(
        FleetOptions(), Secrets(), database_url=lambda: URL, peer_address=lambda _: "127.0.0.1:9999"
    )
    settings = FrontendSettings.from_environ(service.command(_place("frontend-1", 7001)).env)
    assert (settings.listen, settings.advertise_address) == (("127.0.0.1", 7001), "127.0.0.1:9999")


def test_a_replica_that_does_not_advertise_has_the_empty_address_and_not_an_unset_one() -> None:
    assert _frontend(FleetOptions(advertise=False), Secrets()).advertise_address == ""


@pytest.mark.holds("B-182")
def test_replicas_share_their_secrets_and_no_two_fleets_do() -> None:
    secrets = Secrets()
    one, two = (
        _frontend(FleetOptions(), secrets, "frontend-0"),
        _frontend(FleetOptions(), secrets, "frontend-1"),
    )
    assert (one.auth_hmac_secret, one.cluster_secret) == (two.auth_hmac_secret, two.cluster_secret)
    assert one.data_dir != two.data_dir
    other = _frontend(FleetOptions(), Secrets())
    assert {other.auth_hmac_secret, other.cluster_secret, other.registration_token}.isdisjoint(
        {one.auth_hmac_secret, one.cluster_secret, one.registration_token}
    )
    assert one.auth_hmac_secret not in repr(secrets)


@pytest.mark.holds("B-192")
def test_a_workers_block_is_laid_out_as_in_production_and_bounds_its_model_processes() -> None:
    worker = _worker(FleetOptions(), Secrets())
    assert worker.http_port == 7010
    assert (worker.port_base, worker.port_max) == (7011, 7013)
    assert worker.port_max - worker.port_base + 1 == MODEL_PORTS


def test_a_worker_dials_what_it_was_told_once_and_an_agent_is_one_by_type_only() -> None:
    assert _worker(FleetOptions(), Secrets()).frontend_urls == ("http://127.0.0.1:9001",)
    assert _worker(FleetOptions(), Secrets()).node_type == "backend"
    assert _worker(FleetOptions(agents=2), Secrets(), agent=True).node_type == "agent"


def test_the_processes_run_on_the_very_timings_the_fleet_waits_by() -> None:
    options = FleetOptions(preset="drill", timings_s={"reconnect_grace_s": 7.5})
    assert _frontend(options, Secrets()).timings == options.timings
    assert _worker(options, Secrets()).timings == options.timings
    assert options.timings == replace(Timings.drill(), reconnect_grace_s=7.5)


def test_a_nodes_own_variables_win() -> None:
    options = FleetOptions(env={"frontend-1": {"BLACKSTART_CLUSTER_SECRET": ""}})
    assert _frontend(options, Secrets(), "frontend-1").cluster_secret == ""
    assert _frontend(options, Secrets(), "frontend-0").cluster_secret != ""


def test_services_run_under_this_interpreter_without_a_shell() -> None:
    command = FrontendService(FleetOptions(), Secrets(), database_url=lambda: URL).command(
        _place("frontend-0", 7001)
    )
    assert command.argv == (sys.executable, "-m", "inference_fleet.frontend")


def test_worker_n_serves_the_model_named_after_it_at_the_fleets_pace_and_an_agent_serves_none(
    tmp_path: Path,
) -> None:
    options = FleetOptions(workers=3, agents=1, tokens_per_second=12.5)
    folder = write_models(_place("worker-2", 1, 2), tmp_path / "w", options)
    assert (
        folder / "babbler-2" / "model.toml"
    ).read_text() == 'backend = "babbler"\ntokens_per_second = 12.5\n'
    assert list(write_models(_place("agent-0", 1, 2), tmp_path / "a", options).iterdir()) == []


def test_each_worker_serves_the_fleets_commands_beside_its_own_model_as_they_were_given(
    tmp_path: Path,
) -> None:
    command = ("{python}", "-c", 'print("ä\\n")', "--port", "{port}")
    options = FleetOptions(commands={"weights": command})
    for place in (_place("worker-0", 1, 2), _place("worker-1", 3, 4)):
        folder = write_models(place, tmp_path / place.name, options)
        assert {path.name for path in folder.iterdir()} == {f"babbler-{place.index}", "weights"}
        manifest = read_manifest(folder / "weights")
        assert (manifest.backend, tuple(manifest.command)) == (Backend.COMMAND, command)
    assert list(write_models(_place("agent-0", 1, 2), tmp_path / "a", options).iterdir()) == []


def test_workers_start_after_frontends_and_one_replica_less_is_tolerated() -> None:
    topology = topology_of(
        FleetOptions(frontends=3, agents=1),
        Secrets(),
        database_url=lambda: URL,
        dials=lambda _: "http://127.0.0.1:1",
        models=lambda _: Path("/models"),
    )
    assert [[group.service.name for group in stage] for stage in topology.stages()] == [
        ["frontend"],
        ["worker", "agent"],
    ]
    assert topology.tolerates == 2


def test_a_fleet_on_tls_without_a_folder_for_its_certificates_is_refused_and_not_started_in_the_open() -> (
    None
):
    def made(*, tls: bool) -> Topology:
        return topology_of(
            FleetOptions(tls=tls, spread=True),
            Secrets(),
            database_url=lambda: URL,
            dials=lambda _: "http://127.0.0.1:1",
            models=lambda _: Path("/models"),
        )

    with pytest.raises(OptionError, match=r"tls=True: has no folder for its certificates; try: tls_dir="):
        made(tls=True)
    assert made(tls=False).tolerates == 1, "the control: without TLS it needs none"
