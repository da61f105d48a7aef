"""``taskmill graph``: show a task's parents and children, its dependencies and its dependents."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from taskmill import HistoryRecord, TaskGraph, TaskRecord
from taskmill.cli import output, tables, text
from taskmill.cli.output import DONE, WRONG, Refusal
from taskmill.cli.store_file import add_file_and_ids, chosen_file_and_id
from taskmill.reading import ask

Record = TaskRecord | HistoryRecord


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_file_and_ids(parser, "one")
    parser.add_argument("--limit", metavar="N", type=int, default=200, help="at most N tasks, 0 for all (default: 200)")


def execute(arguments: argparse.Namespace) -> int:
    file, id = chosen_file_and_id(arguments.file_and_ids, "graph")
    if arguments.limit < 0:
        raise Refusal("--limit must be at least 0", WRONG)
    graph = ask(file, lambda reader: reader.graph(id))
    if arguments.json:
        output.print_json(graph)
        return DONE
    rows = list(_rows(graph, id))
    shown = rows[: arguments.limit] if arguments.limit else rows
    tables.table(["task", "state", "type", "progress", "after"], shown, middle=frozenset({"type"}), minor=["progress"])
    if len(shown) < len(rows):
        output.say(f"… and {len(rows) - len(shown):,} more; --limit 0 shows all")
    return DONE


def _rows(graph: TaskGraph, chosen: int) -> Iterator[list[str]]:
    """Return a row per task, parents before children; the chosen task is marked."""
    children: dict[int | None, list[Record]] = {}
    for record in graph.tasks.values():
        parent = record.parent_id if record.parent_id in graph.tasks else None
        children.setdefault(parent, []).append(record)
    after: dict[int, list[str]] = {}
    for dependency in graph.dependencies:
        after.setdefault(dependency.task_id, []).append(f"{dependency.on_id}{'' if dependency.open else ' ✓'}")
    below: list[tuple[Record, str, str]] = [(root, "", "") for root in reversed(children.get(None, []))]
    while below:
        record, lead, indent = below.pop()
        mark = " ◂" if record.id == chosen else ""
        state = record.ending if isinstance(record, HistoryRecord) else record.status
        progress = text.progress(record.progress) if record.progress and isinstance(record, TaskRecord) else ""
        waits_for = ", ".join(after.get(record.id, []))
        yield [f"{lead}{record.id}{mark}", state, record.label or record.type, progress, waits_for]
        kids = children.get(record.id, [])
        for place, kid in reversed(list(enumerate(kids, 1))):
            is_last = place == len(kids)
            below.append((kid, f"{indent}{'└─' if is_last else '├─'} ", f"{indent}{'   ' if is_last else '│  '}"))
