"""``taskmill status``: how many tasks are where, and whether anything runs them."""

from __future__ import annotations

import argparse
import asyncio

from taskmill import Ending, Snapshot, Status
from taskmill.cli import machine_output, screen
from taskmill.cli.refusal import DONE
from taskmill.cli.store_file import add_file, chosen_file, dispatcher_of, opened
from taskmill.cli.words import counted

SUMMARY = "Count tasks by status and group, and say whether anything dispatches"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_file(parser)


def execute(arguments: argparse.Namespace) -> int:
    file = chosen_file(arguments.file)
    snapshot, dispatcher = asyncio.run(_look(file))
    if arguments.json:
        machine_output.print_document(
            {
                "store": file,
                "dispatching": dispatcher is not None,
                "dispatcher": dispatcher,
                "active": _chosen(snapshot, Status),
                "ended": _chosen(snapshot, Ending),
                "groups": snapshot.groups,
            }
        )
    else:
        _print(file, snapshot, dispatcher)
    return DONE


async def _look(file: str) -> tuple[Snapshot, str | None]:
    async with opened(file) as scheduler:
        return await scheduler.snapshot(), await dispatcher_of(scheduler)


def _chosen(snapshot: Snapshot, words: type[Status | Ending]) -> dict[str, int]:
    return {str(word): snapshot.counts.get(word, 0) for word in words}


def _print(file: str, snapshot: Snapshot, dispatcher: str | None) -> None:
    active, ended = _chosen(snapshot, Status), _chosen(snapshot, Ending)
    screen.facts(
        [
            ("file", file),
            ("dispatcher", dispatcher or "none: nothing runs the tasks of this file now"),
            ("active", _total(active)),
            ("ended", _total(ended)),
        ]
    )
    if snapshot.groups:
        screen.say()
        screen.table(
            ["running", "pending", "group"],
            [
                [f"{group.running:,}", f"{group.pending:,}", group.name or "(no group)"]
                for group in snapshot.groups.values()
            ],
            numbers=frozenset({"running", "pending"}),
        )


def _total(counts: dict[str, int]) -> str:
    total = sum(counts.values())
    return f"{total:,}: {counted(counts)}" if total else "none"
