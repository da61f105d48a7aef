"""The commands in the order in which ``taskmill --help`` lists them, and the module of each.

A module is imported only for its own command, so that no command waits for the imports of another one.
"""

from __future__ import annotations

import argparse
import importlib
from typing import Protocol, cast


class Command(Protocol):
    """The names that the module of a command defines. ``execute`` returns the exit code."""

    def add_arguments(self, parser: argparse.ArgumentParser, /) -> None: ...
    def execute(self, arguments: argparse.Namespace, /) -> int: ...


SUMMARIES = {
    "demo": "Run a realistic workload on a temporary file, and check that nothing is lost",
    "run": "Run the tasks of a scheduler in your code, until SIGINT or SIGTERM",
    "status": "Count tasks by status and group, and say whether a scheduler dispatches",
    "ls": "List active tasks, oldest first; with --history ended tasks, newest first",
    "stats": "Show statistics of task types, from all tasks that ended",
    "show": "Show everything about one task",
    "watch": "Follow one task until it ends",
    "why": "Say why a task waits, and when it may start",
    "graph": "Show a task's parents and children, its dependencies and its dependents",
    "groups": "Show how groups share the slots; set, pause and resume a group",
    "cron": "List the cron tasks: schedule, last outcome and next run",
    "nodes": "Show the nodes that dispatch, which of them died, and what runs on each",
    "cancel": "Cancel tasks by id",
    "priority": "Change the priority of a task",
    "rate": "List the rate limits, or limit how often tasks of a type start",
    "pause": "Stop new starts, of everything or of one domain; running tasks continue",
    "resume": "Resume after pause",
    "doctor": "Check a store: integrity, versions, permissions, the health of a server, nodes, dead letters",
    "move": "Move a queue with its history to another file or database",
}
"""What each command does, in one line of the help."""

_MODULES = {"resume": "pause"}
"""The modules that are not named after their command."""


def load(command: str) -> Command:
    """Import the module of a command."""
    return cast("Command", importlib.import_module(f"{__name__}.{_MODULES.get(command, command)}"))
