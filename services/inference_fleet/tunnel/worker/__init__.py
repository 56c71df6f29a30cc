"""The worker's side of the tunnel: its dial, and what it answers to streams."""

from inference_fleet.tunnel.worker.dial import Dialled, dial
from inference_fleet.tunnel.worker.serve import Resolve, SeenEpoch, Target, serve_stream, serve_streams

__all__ = ["Dialled", "Resolve", "SeenEpoch", "Target", "dial", "serve_stream", "serve_streams"]
