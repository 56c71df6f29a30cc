"""What is known of one server."""

from __future__ import annotations

from typing import Any

from blackstart.infra.server import PostgresServer

SECRET = "p@ss/w:rd"


def server(**changes: Any) -> PostgresServer:
    told: dict[str, Any] = {
        "provider": "embedded",
        "version": 180006,
        "host": "127.0.0.1",
        "port": 5555,
        "user": "postgres",
        "password": SECRET,
        "origin": "wheel 18",
    }
    return PostgresServer(**{**told, **changes})


def test_a_url_quotes_what_would_end_it_early() -> None:
    assert server().url("a/b") == "postgresql://postgres:p%40ss%2Fw%3Ard@127.0.0.1:5555/a%2Fb"


def test_an_external_url_keeps_its_parameters() -> None:
    given = server(provider="external", base_url="postgresql://u:x@h:1/old?sslmode=require")
    assert given.url("new") == "postgresql://u:x@h:1/new?sslmode=require"


def test_what_goes_into_the_runs_facts_holds_no_password() -> None:
    given = server(base_url=f"postgresql://u:{SECRET}@h/d")
    assert SECRET not in str(given.facts())
    assert SECRET not in repr(given)
    assert SECRET not in given.describe()
    assert given.facts()["port"] == 5555


def test_facts_survive_the_file_that_shares_them() -> None:
    assert PostgresServer.from_state(server().to_state()) == server()
    assert server().describe() == "Postgres 18.6, embedded (wheel 18)"
