"""A network child of the harness: its ports are leased for life, it is told by token, it comes back where it was."""

from __future__ import annotations

import secrets
import sys
import threading
from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar

from blackstart.core.closing import Closing
from blackstart.net.leases import PortLease, lease_ports
from blackstart.net.proxy_control import TOKEN_VARIABLE, ControlClient

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blackstart.process import Exit, Handle, Spawner
    from blackstart.record import Run

HOST = "127.0.0.1"
_SPEC = "net"


class ProxyChild(Closing):
    """Started on construction. The first port carries traffic, the second commands.

    It is ready by then, or `later`: at `wait_ready` or its first command, so that what comes up beside it need not wait.
    """

    module: ClassVar[str]

    def __init__(
        self,
        spawner: Spawner,
        run: Run,
        *,
        node: str,
        spec: str | None,
        start_s: float,
        ports: PortLease | None,
        later: bool = False,
    ) -> None:
        self.node = node
        self.incarnation = 0
        self._spawner = spawner
        self._run = run
        self._spec = spec
        self._start_s = start_s
        self._lease = ports or lease_ports(2, run=run.id, purpose=node)
        self._token = secrets.token_urlsafe(24)
        self.port, self._control_port = self._lease.ports[:2]
        self._control = ControlClient(host=HOST, port=self._control_port, token=self._token, name=node)
        self._readying = threading.RLock()
        self._ready = 0  # the newest incarnation that was
        self.handle: Handle
        try:
            self._start()
            if not later:
                self.wait_ready()
        except BaseException:
            self._lease.release()
            raise

    @property
    def address(self) -> str:
        """`HOST:PORT` of the traffic port."""
        return f"{HOST}:{self.port}"

    @property
    def control(self) -> ControlClient:
        """The way to a child that obeys and knows what it must."""
        self.wait_ready()
        return self._control

    def wait_ready(self) -> None:
        """Return once the newest incarnation obeys and was told what it must know; from any thread."""
        with self._readying:
            if self._ready == self.incarnation:
                return
            self._control.wait_until_answers(within_s=self._start_s, died=self._why_dead)
            before, self._ready = self._ready, self.incarnation
            try:
                self._started()
            except BaseException:
                self._ready = before
                raise

    @property
    def alive(self) -> bool:
        """Whether the child runs."""
        return self.handle.alive

    def describe_death(self) -> str:
        """How the child ended, for a wait that watches it."""
        return self.handle.describe_death()

    def kill(self, *, within_s: float = 10.0) -> None:
        """SIGKILL; live connections end with the process."""
        self.handle.kill(within=within_s)

    def stop(self, *, within_s: float = 10.0) -> Exit:
        """SIGTERM; live connections are reset."""
        return self.handle.stop(within=within_s)

    def restart(self, *, within_s: float = 10.0) -> None:
        """A new process on the same ports, knowing what the old one was told."""
        if self.handle.alive:
            self.kill(within_s=within_s)
        self._start()
        self.wait_ready()

    def close(self) -> None:
        """End the child and give its ports back. A second time is fine."""
        if self.handle.alive:
            self.kill()
        self._lease.release()

    @abstractmethod
    def _arguments(self) -> Sequence[str]:
        """What the child is started with, behind its ports."""

    @abstractmethod
    def _started(self) -> None:
        """The child obeys: tell it what it must know."""

    def _start(self) -> None:
        self.incarnation += 1
        ports = ("--host", HOST, "--port", str(self.port), "--control-port", str(self._control_port))
        self.handle = self._spawner.spawn(
            node=self.node,
            argv=[sys.executable, "-m", self.module, *ports, *self._arguments()],
            env={TOKEN_VARIABLE: self._token},
            cwd=self._run.dir,
            log_dir=self._run.spec_dir(self._spec or _SPEC),
            spec=self._spec or _SPEC,
            incarnation=self.incarnation,
            ports=self._lease,
        )

    def _why_dead(self) -> str:
        return "" if self.handle.alive else self.handle.describe_death()
