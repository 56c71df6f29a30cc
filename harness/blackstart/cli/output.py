"""Results go to stdout and complaints to stderr, a line at once, so that a reader of a pipe sees them as they happen."""

import sys


def say(line: str) -> None:
    """A line of the result."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def complain(line: str) -> None:
    """A line about what went wrong."""
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()
