"""The command line: one parser for all commands, and the exit code of each.

``commands/`` has one module per command, ``views/`` draws on terminals, ``demo/`` is the workload of ``taskmill demo``.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Sequence
from io import TextIOWrapper

from taskmill import TaskmillError, __version__
from taskmill.cli.commands import COMMANDS
from taskmill.cli.refusal import DONE, INTERRUPTED, Refusal, exit_code
from taskmill.cli.screen import complain


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="taskmill", description="Durable background tasks in an SQLite file or a PostgreSQL database."
    )
    top.add_argument("--version", action="version", version=f"taskmill {__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, command in COMMANDS.items():
        one = commands.add_parser(name, help=command.SUMMARY, description=f"{command.SUMMARY}.")
        command.add_arguments(one)
        one.add_argument("--json", action="store_true", help="print JSON for programs")
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    _replace_unencodable_characters()
    given = parser().parse_args(arguments)
    try:
        return COMMANDS[given.command].execute(given)
    except Refusal as refusal:
        complain(str(refusal))
        return refusal.code
    except TaskmillError as wrong:
        complain(str(wrong))
        return exit_code(wrong)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of our output has closed the pipe. Flushing the buffer at exit must not fail again.
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE


def _replace_unencodable_characters() -> None:
    """Print a question mark for a character that the terminal's encoding lacks, instead of raising."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")
