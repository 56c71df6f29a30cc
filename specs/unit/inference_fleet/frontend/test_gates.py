"""Every door has its gate, and every gate has a row that takes it away: a rule of N places is held in N places."""

from __future__ import annotations

import asyncio
import re
import tomllib
from pathlib import Path

import pytest

from inference_fleet.frontend import auth_routes, chat_routes, node_routes, roster_routes

from .served import PASSWORD, served

ROOT = Path(__file__).parents[4]
OPEN = {"/api/auth/register", "/api/auth/login", "/api/auth/logout"}
DOORS = [
    (method, route.path.replace("{id}", "x"))
    for routes in (auth_routes, chat_routes, node_routes, roster_routes)
    for route in routes.ROUTES
    for method in sorted((route.methods or set()) - {"HEAD"})
    if route.path not in OPEN
]
ADMINS = [("GET", "/api/auth/users"), ("POST", "/api/auth/users/x/approve"), ("POST", "/api/nodes/x/approve")]
READERS = [
    (method, path) for method, path in DOORS if path.startswith(("/api/nodes", "/api/reaps", "/api/inst"))
]


def test_no_door_opens_to_whoever_shows_nothing(url: str, tmp_path: Path) -> None:
    async def story() -> None:
        async with served(url, tmp_path) as front:
            for method, path in DOORS:
                reply = await front.http.request(method, path)
                assert reply.status_code == 401, f"anybody passes {method} {path}"
                message = reply.json()["error"]["message"]
                assert "; try: " in message, f"{method} {path} has no remedy: {message}"

    asyncio.run(story())


def test_a_plain_user_passes_no_administrators_door_and_a_plain_key_reads_no_fleet(
    url: str, tmp_path: Path
) -> None:
    async def story() -> None:
        async with served(url, tmp_path, auth_registration="open") as front:
            await front.admin()
            front.http.cookies.clear()
            bob = {"email": "bob@example.org", "password": PASSWORD}
            assert (await front.http.post("/api/auth/register", json=bob)).status_code == 201
            for method, path in ADMINS:
                reply = await front.http.request(method, path)
                assert reply.status_code == 403, f"any user passes {method} {path}"
                assert "; try: " in reply.json()["error"]["message"]
            key = (await front.http.post("/api/auth/keys", json={"name": "k"})).json()["key"]
            front.http.cookies.clear()
            headers = {"Authorization": f"Bearer {key}"}
            assert (await front.http.get("/v1/models", headers=headers)).status_code == 200, "the control"
            for method, path in READERS:
                reply = await front.http.request(method, path, headers=headers)
                assert reply.status_code == 403, f"any key passes {method} {path}"
                assert "; try: " in reply.json()["error"]["message"]

    asyncio.run(story())


@pytest.mark.holds("B-248")
def test_every_gate_of_a_route_is_taken_away_by_some_row() -> None:
    rows = [
        row
        for table in sorted((ROOT / "specs" / "mutations").glob("*.toml"))
        for row in tomllib.loads(table.read_text())["mutation"]
    ]
    gates, bare = 0, []
    for file in sorted((ROOT / "services" / "inference_fleet" / "frontend").glob("*_routes.py")):
        source = file.read_text()
        name = str(file.relative_to(ROOT))
        attacked = [
            (source.index(row["find"]), row["find"])
            for row in rows
            if row["file"] == name and row["find"] in source
        ]
        for gate in re.finditer(r"gate\.(?:require_\w+|limit_attempts)\(", source):
            gates += 1
            if not any(at <= gate.start() and gate.end() <= at + len(find) for at, find in attacked):
                line = source.count("\n", 0, gate.start()) + 1
                bare.append(f"{name}:{line} {gate.group()}")
    assert gates > len(ADMINS), "the control: there are gates to find"
    assert not bare, f"no row takes these away: {bare}"
