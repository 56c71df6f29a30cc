"""`--healthcheck`: ask this worker's own server, found by the worker's own settings, whether it is ready."""

from __future__ import annotations

import http.client
import sys
from typing import TYPE_CHECKING

from inference_fleet.settings.loopback import LOOPBACK

if TYPE_CHECKING:
    from inference_fleet.settings import WorkerSettings

_READ_LIMIT = 4096


def healthcheck(settings: WorkerSettings) -> int:
    """0 when the worker is ready, 1 when it is not or does not answer; one line says which."""
    address = f"http://{LOOPBACK}:{settings.http_port}/readyz"
    connection = http.client.HTTPConnection(
        LOOPBACK, settings.http_port, timeout=settings.timings.backend_probe_s
    )
    try:
        connection.request("GET", "/readyz")
        response = connection.getresponse()
        body = response.read(_READ_LIMIT).decode(errors="replace")
    except (OSError, http.client.HTTPException) as error:
        sys.stderr.write(f"{address}: no answer: {error!r}\n")
        return 1
    finally:
        connection.close()
    sys.stdout.write(f"{address}: HTTP {response.status}: {body}\n")
    return 0 if response.status == 200 else 1
