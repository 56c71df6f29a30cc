"""A child that does not outlive the process that started it, even when that process is killed outright.

`PR_SET_PDEATHSIG` asks the kernel for a SIGKILL when the parent's *thread* that started the child ends, so the
parent must start it from its main thread. The parent may be gone before the question is asked: then the parent
pid is another one already, and the child ends itself.

Run as a file it guards a program that is not ours: `python -I -S lifeline.py PARENT_PID PROGRAM [ARGUMENT...]`
becomes that program (same pid, about 15 ms later).
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1
ORPHANED = 86


def end_with(parent_pid: int) -> None:
    """Tie this process to `parent_pid`, or exit with `ORPHANED` when that parent is gone already."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"PR_SET_PDEATHSIG: {os.strerror(number)}")
    if os.getppid() != parent_pid:
        sys.exit(ORPHANED)


def main(arguments: list[str]) -> None:
    """Become the program that follows the parent's pid."""
    end_with(int(arguments[0]))
    try:
        os.execvp(arguments[1], arguments[1:])  # noqa: S606 - no shell is wanted between the worker and its model
    except OSError as error:
        sys.exit(f"{arguments[1]}: {error.strerror}")


if __name__ == "__main__":
    main(sys.argv[1:])
