"""A port is tried before it is given, and its listener is asked for before it is believed."""

from __future__ import annotations

import os
import socket

import pytest

from inference_fleet.backends.serving import listen
from inference_fleet.settings import WorkerSettings
from inference_fleet.settings.loopback import LOOPBACK
from inference_fleet.worker.ports import (
    PortBlock,
    PortsExhausted,
    is_free,
    listens,
    warn_of_ephemeral_overlap,
)

from .doubles import TOKEN, free_block


@pytest.mark.holds("B-100")
def test_a_port_somebody_listens_on_is_passed_over() -> None:
    base = free_block()
    with listen(LOOPBACK, base):
        taken = PortBlock(base, base + 3).take()

        assert taken == base + 1
    assert PortBlock(base, base + 3).take() == base, "the control: free, it is given"


@pytest.mark.holds("B-100")
def test_a_listener_on_every_address_holds_its_port_too() -> None:
    base = free_block()
    with socket.create_server(("0.0.0.0", base)):  # noqa: S104 - a stranger's listener is what this is about
        assert not is_free(base)
    assert is_free(base)


@pytest.mark.holds("B-86")
def test_an_exhausted_block_names_the_setting_that_widens_it() -> None:
    base = free_block()
    block = PortBlock(base, base + 1)
    assert {block.take(), block.take()} == {base, base + 1}

    with pytest.raises(PortsExhausted, match="BLACKSTART_PORT_MAX"):
        block.take()
    block.give_back(base)
    assert block.take() == base


def test_a_port_given_back_is_the_last_to_be_given_again() -> None:
    base = free_block()
    block = PortBlock(base, base + 2)
    first = block.take()
    block.give_back(first)

    assert [block.take(), block.take(), block.take()] == [base + 1, base + 2, base]


@pytest.mark.holds("B-86", "B-100")
def test_the_default_block_lies_below_the_ephemeral_range(caplog: pytest.LogCaptureFixture) -> None:
    settings = WorkerSettings.from_environ(
        {
            "BLACKSTART_FRONTEND_URLS": "http://f",
            "BLACKSTART_REGISTRATION_TOKEN": TOKEN,
            "BLACKSTART_NODE_NAME": "w",
        }
    )

    warn_of_ephemeral_overlap(settings.http_port, settings.port_max)
    assert not caplog.records
    assert settings.http_port == settings.port_base - 1
    warn_of_ephemeral_overlap(60_000, 60_100)  # the control
    assert "overlap the ephemeral range" in caplog.text


def test_who_listens_is_known_by_its_process() -> None:
    with listen(LOOPBACK, 0) as listener:
        port = listener.getsockname()[1]

        assert listens(os.getpid(), port)
        assert not listens(1, port)
    assert not listens(os.getpid(), port)
