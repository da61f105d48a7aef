"""The commands, one module each, in the order in which ``taskmill --help`` lists them."""

from __future__ import annotations

import argparse
from typing import Protocol

from taskmill.cli.commands import (
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


class Command(Protocol):
    """The names that the module of a command defines. ``execute`` returns the exit code."""

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
