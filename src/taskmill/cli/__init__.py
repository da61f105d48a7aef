"""The command line: one parser for all commands, and the exit code of each.

``commands/`` has one module per command, ``views/`` draws on terminals, ``demo/`` is the workload of ``taskmill demo``.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Collection, Sequence
from io import TextIOWrapper

from taskmill import TaskmillError, __version__
from taskmill.cli.commands import SUMMARIES, load
from taskmill.cli.output import DONE, INTERRUPTED, Refusal, complain, exit_code


def parser(commands: Collection[str] = SUMMARIES) -> argparse.ArgumentParser:
    """Return the parser, with the arguments of these commands; the others only have a name and a summary."""
    top = argparse.ArgumentParser(
        prog="taskmill", description="Durable background tasks in an SQLite file or a PostgreSQL database."
    )
    top.add_argument("--version", action="version", version=f"taskmill {__version__}")
    every = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, summary in SUMMARIES.items():
        one = every.add_parser(name, help=summary, description=f"{summary}.")
        if name in commands:
            load(name).add_arguments(one)
            one.add_argument("--json", action="store_true", help="print JSON for programs")
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    _replace_unencodable_characters()
    words = sys.argv[1:] if arguments is None else arguments
    # The options before a command take no values, so the first other word is the command.
    given = parser([word for word in words if not word.startswith("-")][:1]).parse_args(words)
    try:
        return load(given.command).execute(given)
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
