"""A worker: it dials out, runs models on its own loopback, and serves them through its tunnel."""
