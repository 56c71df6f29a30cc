"""The balancer's own process: its settings are one JSON object in an argument, its token is in the environment."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
from typing import TYPE_CHECKING, Any

from blackstart.net.balancer.rules import Action
from blackstart.net.balancer.server import BalancerServer, Patience
from blackstart.net.proxy_control import TOKEN_VARIABLE, Command, serve_control

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


def handlers(balancer: BalancerServer) -> Mapping[str, Callable[[Command], Mapping[str, Any]]]:
    """What may be asked of a balancer, by the word it is asked with."""

    def set_backends(command: Command) -> Mapping[str, Any]:
        balancer.backends.replace([parse_address(text) for text in command["backends"]])
        return {}

    def add_rule(command: Command) -> Mapping[str, Any]:
        rule = balancer.rules.add(
            Action(command["action"]), str(command["pattern"]), status=int(command.get("status", 503))
        )
        return {"rule": rule.id}

    return {
        "ping": lambda _: {"pid": os.getpid()},
        "backends": set_backends,
        "rule": add_rule,
        "lift": lambda command: {"hits": balancer.rules.lift(int(command["rule"])).hits},
        "hits": lambda command: {"hits": balancer.rules.hits(int(command["rule"]))},
        "cut": lambda command: {"count": balancer.cut(str(command["pattern"]))},
        "stall": lambda command: {"count": balancer.stall(str(command["pattern"]))},
        "resume": lambda command: {"count": balancer.resume(str(command["pattern"]))},
        "live": lambda command: {"count": balancer.live(str(command["pattern"]))},
        "seen": lambda command: {"seen": balancer.account.seen(str(command["pattern"]))},
        "recent": lambda command: {
            "dials": balancer.account.recent(str(command["pattern"]), most=int(command["most"]))
        },
    }


def parse_address(text: str) -> tuple[str, int]:
    """`HOST:PORT`."""
    host, colon, port = str(text).rpartition(":")
    if not colon or not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise ValueError(f"backend={text}: not HOST:PORT; try: 127.0.0.1:8080")
    return host, int(port)


async def _run(options: argparse.Namespace, token: str) -> None:
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    patience = Patience(head_s=options.head_s, connect_s=options.connect_s)
    balancer = BalancerServer(
        [parse_address(text) for text in json.loads(options.backends)], patience=patience
    )
    front = await balancer.listen(options.host, options.port)
    control = await serve_control(
        host=options.host, port=options.control_port, token=token, handlers=handlers(balancer)
    )
    sys.stderr.write(f"balancer: listening on {options.host}:{options.port}\n")
    await ended.wait()
    for server in (front, control):
        server.close()
    balancer.cut("")


def main(argv: Sequence[str] | None = None) -> int:
    """Run until SIGTERM; exit status 0 then, 2 on bad settings."""
    parser = argparse.ArgumentParser(prog="python -m blackstart.net.balancer", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--control-port", type=int, required=True)
    parser.add_argument("--backends", default="[]", help="a JSON list of HOST:PORT")
    parser.add_argument("--head-s", type=float, default=Patience.head_s)
    parser.add_argument("--connect-s", type=float, default=Patience.connect_s)
    options = parser.parse_args(argv)
    token = os.environ.pop(TOKEN_VARIABLE, "")
    if not token:
        parser.error(f"{TOKEN_VARIABLE} is empty: nobody could control this balancer")
    asyncio.run(_run(options, token))
    return 0


if __name__ == "__main__":
    sys.exit(main())
