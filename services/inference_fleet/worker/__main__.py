"""`python -m inference_fleet.worker [--healthcheck]`: exit 0 on SIGTERM, 1 when refused or not ready, 2 on bad settings."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from inference_fleet.settings import SettingsError, WorkerSettings
from inference_fleet.settings.commands import Arguments, complain
from inference_fleet.settings.loading import kept_for_life

if TYPE_CHECKING:
    from collections.abc import Mapping


def main(argv: list[str] | None = None, *, environ: Mapping[str, str] = os.environ) -> int:
    """The exit code."""
    parser = Arguments(
        prog="python -m inference_fleet.worker",
        description="Serve models through a tunnel that this worker dials. All settings are BLACKSTART_* variables.",
        settings=WorkerSettings,
    )
    parser.add_argument(
        "--healthcheck", action="store_true", help="ask the worker with these settings if it is ready"
    )
    options = parser.parse_args(argv)
    try:
        settings = WorkerSettings.from_environ(environ)
    except SettingsError as error:
        return complain(str(error))
    if options.healthcheck:
        from inference_fleet.worker.healthcheck import healthcheck  # noqa: PLC0415 - a probe runs often, alone

        return healthcheck(settings)
    with kept_for_life():
        from inference_fleet.worker.starting import BadStart, start  # noqa: PLC0415 - a healthcheck needs none of it

    try:
        return start(settings)
    except (BadStart, SettingsError) as error:
        return complain(str(error))


if __name__ == "__main__":
    sys.exit(main())
