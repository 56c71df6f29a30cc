"""What an operator must be told at the start: settings that are legal, and leave a replica alone among its peers."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from inference_fleet.settings import FrontendSettings


def warnings_of(settings: FrontendSettings, *, peers: int) -> Iterator[str]:
    """One line a setting, with what follows from it and what to set; `peers` is how many other replicas live now."""
    if not settings.registration_token:
        yield "BLACKSTART_REGISTRATION_TOKEN is empty: no worker can register here; set what workers show"
    if not settings.cluster_secret:
        yield (
            "BLACKSTART_CLUSTER_SECRET is empty: no peer is trusted, so a worker is reached through the replica"
            " that holds its tunnel and through no other; set the same secret on every replica"
        )
    if peers and not settings.auth_hmac_secret:
        yield (
            f"BLACKSTART_AUTH_HMAC_SECRET is empty beside {peers} live replica(s): each keys sessions and API keys"
            " with a secret of its own and answers 401 to the others'; set the same secret on every replica"
        )
