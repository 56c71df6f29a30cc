"""The command line: one parser, one error form, one table of exit codes; a command's imports wait until it runs."""

from __future__ import annotations

import os
import sys
import traceback
from typing import TYPE_CHECKING

from blackstart.cli.discovery import find_commands
from blackstart.cli.output import complain
from blackstart.cli.parser import build_parser
from blackstart.core.commands import CommandError, ExitCode
from blackstart.core.redact import redact

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and gives its exit code; what went wrong is one line on stderr."""
    try:
        parser = build_parser(find_commands())
        arguments = parser.parse_args(argv)
        if arguments.command is None:
            parser.print_help(sys.stderr)
            parser.error("the following arguments are required: command")
        code = int(arguments.run(arguments))
        if sys.stdout is not None:  # closed by whoever called
            sys.stdout.flush()
    except CommandError as error:
        complain(redact(str(error)))
        return error.code
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except BrokenPipeError:  # the reader of our output left; nothing more can be said to it
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
        complain("blackstart: stdout=pipe: its reader went away; try: keep it open, or > FILE")
        return ExitCode.HARNESS_FAILURE
    except Exception as error:  # noqa: BLE001 - the last resort: a defect of ours must not look like a verdict
        sys.stderr.write(redact(traceback.format_exc()))
        said = " ".join(str(error).split()) or "no word"
        complain(
            redact(
                f"blackstart: failure={type(error).__name__}: {said} (nobody foresaw it, so nothing is judged);"
                " try: the trace above, which says where; report it"
            )
        )
        return ExitCode.HARNESS_FAILURE
    return code
