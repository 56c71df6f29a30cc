"""`python -m inference_fleet.frontend [--help]`: one replica, configured by `BLACKSTART_*` variables.

Exit status: 0 after SIGTERM, 1 when it failed or its database did not come up, 2 for arguments and settings it
cannot use.
"""

from __future__ import annotations

import asyncio
import os
import sys
from urllib.parse import unquote, urlsplit

from inference_fleet.settings import FrontendSettings, SettingsError
from inference_fleet.settings.commands import Arguments, complain
from inference_fleet.settings.loading import kept_for_life
from inference_fleet.telemetry.logs import configure_logs

FAILED = 1


def main(argv: list[str] | None = None) -> int:
    """Read the settings, then serve until told to stop."""
    Arguments(
        prog="python -m inference_fleet.frontend",
        description="One replica: workers dial it, clients ask it. All settings are BLACKSTART_* variables.",
        settings=FrontendSettings,
    ).parse_args(argv)
    try:
        settings = FrontendSettings.from_environ(os.environ)
        configure_logs(instance=settings.instance_id, secrets=_secrets(settings))
        return _run(settings)
    except SettingsError as error:
        return complain(str(error))


def _run(settings: FrontendSettings) -> int:
    # Wrong settings are told before these, which take most of a start.
    with kept_for_life():
        from inference_fleet.frontend.server import serve  # noqa: PLC0415
        from inference_fleet.store import DatabaseRefused, DatabaseTooOld, StoreError  # noqa: PLC0415

    try:
        return asyncio.run(serve(settings))
    except (DatabaseRefused, DatabaseTooOld) as error:
        return complain(f"BLACKSTART_DATABASE_URL=***: {error}")
    except StoreError as error:
        return complain(f"BLACKSTART_DATABASE_URL=***: {error}", FAILED)


def _secrets(settings: FrontendSettings) -> list[str]:
    password = urlsplit(settings.database_url).password or ""
    return [
        settings.cluster_secret,
        settings.registration_token,
        settings.auth_hmac_secret,
        settings.database_url,
        password,
        unquote(password),
    ]


if __name__ == "__main__":
    sys.exit(main())
