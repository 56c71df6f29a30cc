"""The runtime over real processes: nodes, clusters, readiness and waiting."""
