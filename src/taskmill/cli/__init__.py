"""The command line: one file per command; here they become one parser and one exit code."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Sequence
from io import TextIOWrapper
from typing import Protocol

from taskmill import TaskmillError, __version__
from taskmill.cli import (
    cancel,
    cron,
    demo,
    doctor,
    graph,
    groups,
    ls,
    move,
    nodes,
    pause,
    priority,
    rate,
    resume,
    run,
    show,
    stats,
    status,
    watch,
    why,
)
from taskmill.cli.refusal import DONE, INTERRUPTED, Refusal, exit_code
from taskmill.cli.screen import complain


class Command(Protocol):
    """What each module of a command offers."""

    @property
    def SUMMARY(self) -> str: ...  # noqa: N802 - a constant of the module
    def add_arguments(self, parser: argparse.ArgumentParser, /) -> None: ...
    def execute(self, arguments: argparse.Namespace, /) -> int: ...


COMMANDS: dict[str, Command] = {
    "demo": demo,
    "run": run,
    "status": status,
    "ls": ls,
    "stats": stats,
    "show": show,
    "watch": watch,
    "why": why,
    "graph": graph,
    "groups": groups,
    "cron": cron,
    "nodes": nodes,
    "cancel": cancel,
    "priority": priority,
    "rate": rate,
    "pause": pause,
    "resume": resume,
    "doctor": doctor,
    "move": move,
}


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="taskmill", description="Durable background work in one SQLite file.")
    top.add_argument("--version", action="version", version=f"taskmill {__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, command in COMMANDS.items():
        one = commands.add_parser(name, help=command.SUMMARY, description=f"{command.SUMMARY}.")
        command.add_arguments(one)
        one.add_argument("--json", action="store_true", help="print JSON for programs")
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code."""
    _never_fail_on_a_character()
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
        # Whoever read our output has seen enough. What is still buffered must not fail again at exit.
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE


def _never_fail_on_a_character() -> None:
    """An old terminal's encoding may lack a character; a question mark is better than a traceback."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")
