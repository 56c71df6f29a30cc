"""The nodes: registration, heartbeat, status."""
