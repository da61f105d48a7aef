"""The commands, what each is for, and the module of each.

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
    "demo": "Run a workload on a temporary file, and check that nothing is lost",
    "run": "Run the tasks of a scheduler in your code, until it is stopped",
    "status": "Count tasks by status and group; show which process dispatches",
    "ls": "List active tasks, oldest first; with --history ended ones",
    "stats": "Show statistics of task types, from all tasks that ended",
    "show": "Show everything about one task",
    "errors": "Show what went wrong, in groups or for one task",
    "watch": "Follow the whole queue, or one task until it ends",
    "why": "Say why a task waits, and when it may start",
    "forecast": "Say when the tasks of the queue will start and end",
    "simulate": "Try other settings on the queue or on the past",
    "graph": "Show a task's family, its dependencies and its dependents",
    "groups": "Show how groups share the slots; set, pause and resume a group",
    "events": "Print the latest events, or follow them",
    "cron": "List the cron tasks: last outcome and next run; run one now",
    "nodes": "Show which nodes dispatch or died, and what runs on each",
    "web": "Show the store in a browser, and control it there",
    "submit": "Store a task of a registered type; with --wait, wait for its end",
    "retry": "Return dead letters to the queue, by ids or by filters",
    "cancel": "Cancel tasks, by ids or by filters",
    "priority": "Change the priority of tasks, by ids or by filters",
    "rate": "List the rate limits, or limit how often tasks of a type start",
    "pause": "Stop new starts, of everything or of one domain",
    "resume": "Resume after pause",
    "doctor": "Check a store, this machine and the versions; report a bug",
    "prune": "Delete old tasks from history",
    "backup": "Copy the file of a queue while programs use it",
    "move": "Move a queue with its history to another file or database",
    "completion": "Print a script that completes commands in your shell",
}
"""What each command does, in one line of the help."""

PURPOSES = {
    "Look at a queue": ("status", "ls", "show", "watch", "why", "graph", "groups", "cron", "nodes", "stats"),
    "See what happened": ("errors", "events", "web"),
    "Look ahead": ("forecast", "simulate"),
    "Change a queue": ("submit", "retry", "cancel", "priority", "rate", "pause", "resume"),
    "Run tasks": ("run", "demo"),
    "Maintain a store": ("doctor", "prune", "backup", "move", "completion"),
}
"""The commands by purpose, as the help lists them; a command that is missing here is listed last."""

MEANT = {
    "run": ("worker", "work", "start", "consumer", "serve"),
    "status": ("queue", "queues", "state"),
    "ls": ("list", "tasks", "jobs", "pending"),
    "ls --history": ("history", "done", "completed"),
    "ls --status dead_letter": ("dead", "dlq", "dead-letters"),
    "show": ("info", "inspect", "get", "describe"),
    "nodes": ("workers", "ps"),
    "watch": ("top", "monitor", "follow", "tail"),
    "events": ("log", "logs"),
    "errors": ("failed", "failures", "traceback"),
    "web": ("dashboard", "ui", "server"),
    "submit": ("enqueue", "add", "send", "call", "push"),
    "retry": ("requeue", "replay", "revive"),
    "cancel": ("kill", "abort", "revoke", "stop"),
    "prune": ("purge", "clean", "delete", "rm"),
    "cron": ("schedule", "schedules", "beat"),
    "doctor": ("check", "health", "ping"),
    "why": ("explain",),
    "move": ("migrate",),
    "--version": ("version",),
}
"""The words of other task queues for each command, which are suggested when they are given as a command."""

_MODULES = {"resume": "pause"}
"""The modules that are not named after their command."""


def load(command: str) -> Command:
    """Import the module of a command."""
    return cast("Command", importlib.import_module(f"{__name__}.{_MODULES.get(command, command)}"))
