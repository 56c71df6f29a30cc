"""The OpenAI-compatible face of the fleet."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.routing import Route

ROUTES: list[Route] = []
