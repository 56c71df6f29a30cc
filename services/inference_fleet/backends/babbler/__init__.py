"""A small real language model in a process of its own: enough to rehearse with, nothing to download."""
