"""The one address a worker listens on and its tunnel connects to; that the two agree is one fact."""

LOOPBACK = "127.0.0.1"
