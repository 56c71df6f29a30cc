"""Start a real cluster, kill the part you name, and show with evidence what survived."""
