"""``taskmill status``: count tasks by status and group, and show whether a dispatcher runs."""

from __future__ import annotations

import argparse

from taskmill import Ending, Snapshot, Status
from taskmill.cli import cells, output, tables, text
from taskmill.cli.orphans import orphans, sentence
from taskmill.cli.output import DONE
from taskmill.cli.store_file import add_file, chosen_file, dispatcher_of, shown
from taskmill.reading import Reader, ask


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_file(parser)


def execute(arguments: argparse.Namespace) -> int:
    file = chosen_file(arguments.file)
    snapshot, dispatcher = ask(file, _look)
    if arguments.json:
        output.print_json(
            {
                "store": shown(file),
                "dispatching": dispatcher is not None,
                "dispatcher": dispatcher,
                "active": _chosen(snapshot, Status),
                "ended": _chosen(snapshot, Ending),
                "paused": snapshot.paused,
                "paused_domains": snapshot.paused_domains,
                "paused_groups": snapshot.paused_groups,
                "pressure": snapshot.pressure,
                "groups": snapshot.groups,
                "unhandled": snapshot.unhandled,
                "left_behind": [task.id for task in orphans(snapshot)],
            }
        )
    else:
        _print(file, snapshot, dispatcher)
    return DONE


async def _look(reader: Reader) -> tuple[Snapshot, str | None]:
    return await reader.snapshot(), await dispatcher_of(reader)


def _chosen(snapshot: Snapshot, kinds: type[Status | Ending]) -> dict[str, int]:
    return {str(kind): snapshot.counts.get(kind, 0) for kind in kinds}


def _print(file: str, snapshot: Snapshot, dispatcher: str | None) -> None:
    active, ended = _chosen(snapshot, Status), _chosen(snapshot, Ending)
    paused, pressure = text.paused(snapshot), text.pressure_elsewhere(snapshot)
    left = orphans(snapshot)
    output.facts(
        [
            ("store", shown(file)),
            ("dispatcher", dispatcher or "none: nothing runs the tasks of this store now"),
            *([("left behind", sentence(left))] if left else []),
            *([("paused", paused)] if paused else []),
            *([("pressure", pressure)] if pressure else []),
            *([("no handler", _unhandled(snapshot))] if snapshot.unhandled else []),
            ("active", _total(active)),
            ("ended", _total(ended)),
        ]
    )
    if snapshot.groups:
        output.say()
        _print_groups(snapshot)


def _print_groups(snapshot: Snapshot) -> None:
    headings = ["running", *(["share"] if snapshot.is_shared else []), "pending", "group"]
    rows = [
        [
            f"{group.running:,}",
            *([f"{group.slots:,}"] if snapshot.is_shared else []),
            f"{group.pending:,}",
            text.group_name(group.name),
        ]
        for group in sorted(snapshot.groups.values(), key=lambda group: cells.natural(group.name))
    ]
    tables.table(headings, rows, numbers=frozenset({"running", "share", "pending"}), middle=frozenset({"group"}))


def _total(counts: dict[str, int]) -> str:
    total = sum(counts.values())
    return f"{total:,}: {text.counted(counts)}" if total else "none"


def _unhandled(snapshot: Snapshot) -> str:
    types = ", ".join(f"{type} ({number:,} waiting)" for type, number in snapshot.unhandled.items())
    return f"{types}: no dispatcher has a handler for them"
