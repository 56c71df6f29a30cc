"""One replica: its HTTP surface, its end of the tunnels, and the process around them."""
