"""Infra for one spec: what it asks for ends with it, and the server it may be the first to start is the run's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blackstart.infra import Infra

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from blackstart.infra import PostgresServer
    from blackstart.process import Spawner
    from blackstart.record import Run


class SpecInfra(Infra):
    """`Infra` whose shared server is no leak of the spec that happened to need it first."""

    def __init__(
        self, run: Run, spawner: Spawner, option: str, *, adopting: Callable[[], AbstractContextManager[None]]
    ) -> None:
        super().__init__(run, spawner, option)
        self._adopting = adopting

    @property
    def postgres(self) -> PostgresServer:
        """The run's server."""
        if self.started:
            return super().postgres
        with self._adopting():
            return super().postgres
