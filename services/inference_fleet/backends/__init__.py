"""The model processes a worker runs: what a `model.toml` says, and the small model that ships."""
