"""Every story of `test_session` again, under a server that offers nothing but ASGI."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from .linked import offering
from .test_session import *  # noqa: F403  # the stories themselves, collected here a second time

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def _asgi() -> Iterator[None]:
    with offering("asgi"):
        yield
