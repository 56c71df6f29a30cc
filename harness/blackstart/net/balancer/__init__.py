"""A balancer of the harness's own, in a child process: what workers dial, and where tunnels are blocked."""

from blackstart.net.balancer.client import Balancer, Seen
from blackstart.net.balancer.rules import Action, Dial, Fate, Rule

__all__ = ["Action", "Balancer", "Dial", "Fate", "Rule", "Seen"]
