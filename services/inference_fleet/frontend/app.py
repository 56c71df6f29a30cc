"""The application of one replica: its routes, its errors, and a lifespan that is the replica's own."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware

from inference_fleet.frontend import (
    auth_routes,
    chat_routes,
    node_routes,
    peer_route,
    probes,
    roster_routes,
    tunnel_route,
)
from inference_fleet.frontend.errors import (
    ApiError,
    on_api_error,
    on_database_unavailable,
    on_failure,
    on_http_exception,
)
from inference_fleet.frontend.replica import open_replica
from inference_fleet.frontend.tracing import TraceMiddleware
from inference_fleet.store import DatabaseUnavailable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.types import Lifespan

    from inference_fleet.frontend.replica import Replica
    from inference_fleet.settings import FrontendSettings


def create_app(settings: FrontendSettings) -> Starlette:
    """The ASGI application for any server; its replica lives from lifespan start-up to shutdown."""

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with open_replica(settings, port=settings.listen[1]) as replica:
            app.state.replica = replica
            yield

    return _app(lifespan)


def build_app(replica: Replica) -> Starlette:
    """The ASGI application of a replica that is open already."""
    app = _app(None)
    app.state.replica = replica
    return app


def _app(lifespan: Lifespan[Starlette] | None) -> Starlette:
    return Starlette(
        routes=[
            *probes.ROUTES,
            *auth_routes.ROUTES,
            *node_routes.ROUTES,
            *tunnel_route.ROUTES,
            *peer_route.ROUTES,
            *roster_routes.ROUTES,
            *chat_routes.ROUTES,
        ],
        middleware=[Middleware(TraceMiddleware)],
        exception_handlers={
            ApiError: on_api_error,
            DatabaseUnavailable: on_database_unavailable,
            HTTPException: on_http_exception,
            Exception: on_failure,
        },
        lifespan=lifespan,
    )
