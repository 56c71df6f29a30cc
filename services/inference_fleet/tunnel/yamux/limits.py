"""What one session may cost: a limit on everything a peer can make us hold."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits of one session, each with a named end.

    What a peer can make this end hold is `open_streams` x 256 KiB + `growth_pool` of what it sent and nobody read, and of
    what it does not read itself `open_streams` x `stream_backlog` + `session_backlog`; with the values below 256 + 16 and
    192 + 32 MiB, and some 4 KiB a stream. `stream_backlog` covers what a splice or an HTTP request may have waiting, so
    that a stream which obeys its water marks is never reset for what others hoard.

    | field               | bounds                                              | past it                            |
    |---------------------|-----------------------------------------------------|------------------------------------|
    | `open_streams`      | streams alive at once, both directions together     | `StreamLimit` here; RST to a peer  |
    | `half_open_streams` | streams not yet acknowledged, each direction        | `StreamLimit` here; RST to a peer  |
    | `resets_per_second` | resets, refused opens and stray frames of the peer  | session ends, `reset-flood`        |
    | `pings_per_second`  | pings of the peer, each of which is answered        | session ends, `ping-flood`         |
    | `empty_frames_per_second` | frames that say nothing: no payload, no credit, no flag; answers nobody asked for; a second go-away | session ends, `empty-flood` |
    | `frame_bytes`       | payload of one DATA frame we send                   | the rest waits for its next turn   |
    | `control_frames`    | header-only frames waiting for the carrier          | session ends, `control-backlog`    |
    | `stream_backlog`    | payload of one stream waiting to be sent, kept free for it | it uses `session_backlog`   |
    | `session_backlog`   | payload past that of all streams waiting to be sent | the writing stream is reset        |
    | `growth_pool`       | receive windows of all streams past their first ones| windows stay as they are           |
    | `largest_window`    | the receive window of one stream                    | it stays as it is                  |
    | `remembered_ids`    | ids of reset streams and of gaps still told apart   | older ones count as strays / used  |
    """

    open_streams: int = 1024
    half_open_streams: int = 256
    resets_per_second: int = 2048
    pings_per_second: int = 1024
    empty_frames_per_second: int = 1024
    frame_bytes: int = 128 * 1024
    control_frames: int = 4096
    stream_backlog: int = 192 * 1024
    session_backlog: int = 32 * 1024 * 1024
    growth_pool: int = 16 * 1024 * 1024
    largest_window: int = 8 * 1024 * 1024
    remembered_ids: int = 1024

    def __post_init__(self) -> None:
        """A limit of nothing is a mistake, not a way to switch something off."""
        for field in fields(self):
            if getattr(self, field.name) < 1:
                raise ValueError(f"limit {field.name}={getattr(self, field.name)}: must be 1 or more")
