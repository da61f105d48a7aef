"""``taskmill nodes``: show which nodes are alive, and what runs on each."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

from taskmill import NodeSnapshot, Snapshot, TaskRecord
from taskmill.cli import output, tables, text
from taskmill.cli.output import DONE
from taskmill.cli.store_file import add_file, chosen_file, shown
from taskmill.reading import Reader, ask

NO_NODE = "(none)"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_file(parser)


def execute(arguments: argparse.Namespace) -> int:
    file = chosen_file(arguments.file)
    snapshot = ask(file, Reader.snapshot)
    tasks = {task.id: task for task in snapshot.running}
    if arguments.json:
        output.print_json(
            {
                "store": shown(file),
                "nodes": [_document(node, tasks) for node in snapshot.nodes],
                "without_node": [_task_document(task) for task in _left_behind(snapshot)],
            }
        )
    else:
        _print(snapshot, tasks)
    return DONE


def _left_behind(snapshot: Snapshot) -> list[TaskRecord]:
    """Return the running tasks without a node; live nodes return them to the queue within about ten seconds."""
    at_nodes = {id for node in snapshot.nodes for id in node.running}
    return [task for task in snapshot.running if task.id not in at_nodes]


def _print(snapshot: Snapshot, tasks: Mapping[int, TaskRecord]) -> None:
    now = datetime.now(UTC)
    left_behind = _left_behind(snapshot)
    if snapshot.nodes:
        tables.table(
            ["node", "state", "since", "seen", "slots"],
            [_row(node, now) for node in snapshot.nodes],
            wrap=frozenset({"slots"}),
            middle=frozenset({"node"}),
        )
    else:
        output.say("nothing dispatches: no node runs the tasks of this store now")
    rows = [_task_row(tasks[id], node.name, now) for node in snapshot.nodes for id in node.running]
    rows += [_task_row(task, NO_NODE, now) for task in left_behind]
    if rows:
        output.say()
        tables.table(
            ["task", "node", "for", "type", ""],
            rows,
            numbers=frozenset({"task"}),
            middle=frozenset({"node", "type", ""}),
        )
    if left_behind:
        output.say()
        output.paragraph(
            f"{text.plural(len(left_behind), 'task')} without a node, left behind by a node that died;"
            f" {_rescue(snapshot)}"
        )


def _rescue(snapshot: Snapshot) -> str:
    if any(node.is_alive for node in snapshot.nodes):
        return "live nodes return such tasks to the queue within about ten seconds"
    return "the next node that starts returns such tasks to the queue"


def _row(node: NodeSnapshot, now: datetime) -> list[str]:
    return [
        node.name,
        "alive" if node.is_alive else "dead",
        text.ago(node.since, now),
        # The clock of the node may be ahead of this one.
        text.ago(min(node.seen_at, now), now),
        _slots(node),
    ]


def _slots(node: NodeSnapshot) -> str:
    count = len(node.running)
    if not node.is_alive:
        return f"{text.plural(count, 'task')} to be rescued by another node" if count else "ran nothing"
    if not node.slots:
        return f"{count:,} taken"
    return f"{count:,} taken, {max(0, node.slots - count):,} free"


def _task_row(task: TaskRecord, node: str, now: datetime) -> list[str]:
    return [str(task.id), node, _running_for(task, now), task.type, text.subject(task)]


def _running_for(task: TaskRecord, now: datetime) -> str:
    return "" if task.started_at is None else text.duration(max(now - task.started_at, timedelta()))


def _document(node: NodeSnapshot, tasks: Mapping[int, TaskRecord]) -> dict[str, object]:
    running: Sequence[TaskRecord] = [tasks[id] for id in node.running]
    return {
        "id": node.id,
        "name": node.name,
        "is_alive": node.is_alive,
        "since": node.since,
        "seen_at": node.seen_at,
        "slots": node.slots,
        "running": [_task_document(task) for task in running],
    }


def _task_document(task: TaskRecord) -> dict[str, object]:
    return {
        "id": task.id,
        "type": task.type,
        "key": task.key,
        "label": task.label,
        "attempt": task.attempt,
        "started_at": task.started_at,
    }
