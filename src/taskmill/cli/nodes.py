"""``taskmill nodes``: who is alive, and what runs where."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

from taskmill import NodeSnapshot, Snapshot, TaskRecord
from taskmill.cli import machine_output, screen, words
from taskmill.cli.refusal import DONE
from taskmill.cli.store_file import add_file, chosen_file, opened, shown

SUMMARY = "Show the nodes that dispatch, which of them died, and what runs where"

NO_NODE = "(none)"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_file(parser)


def execute(arguments: argparse.Namespace) -> int:
    file = chosen_file(arguments.file)
    picture = asyncio.run(_look(file))
    tasks = {task.id: task for task in picture.running}
    if arguments.json:
        machine_output.print_document(
            {
                "store": shown(file),
                "nodes": [_document(node, tasks) for node in picture.nodes],
                "without_node": [_task_document(task) for task in _left_behind(picture)],
            }
        )
    else:
        _print(picture, tasks)
    return DONE


async def _look(file: str) -> Snapshot:
    async with opened(file) as scheduler:
        return await scheduler.snapshot()


def _left_behind(picture: Snapshot) -> list[TaskRecord]:
    """What runs by its status, and under no node: a node that starts returns it to the queue."""
    at_nodes = {id for node in picture.nodes for id in node.running}
    return [task for task in picture.running if task.id not in at_nodes]


def _print(picture: Snapshot, tasks: Mapping[int, TaskRecord]) -> None:
    now = datetime.now(UTC)
    left_behind = _left_behind(picture)
    if picture.nodes:
        screen.table(
            ["node", "state", "since", "seen", "slots"],
            [_row(node, now) for node in picture.nodes],
            wrap=frozenset({"slots"}),
        )
    else:
        screen.say("nothing dispatches: no node runs the tasks of this store now")
    rows = [_task_row(tasks[id], node.name, now) for node in picture.nodes for id in node.running]
    rows += [_task_row(task, NO_NODE, now) for task in left_behind]
    if rows:
        screen.say()
        screen.table(["task", "node", "for", "type", ""], rows, numbers=frozenset({"task"}))
    if left_behind:
        screen.say()
        screen.paragraph(
            f"{words.plural(len(left_behind), 'task')} under no node: left by a node that died,"
            " and returned to the queue by the next one that starts"
        )


def _row(node: NodeSnapshot, now: datetime) -> list[str]:
    return [
        node.name,
        "alive" if node.is_alive else "dead",
        words.ago(node.since, now),
        # A moment is as good as now, whatever the two clocks say.
        words.ago(min(node.seen_at, now), now),
        _slots(node),
    ]


def _slots(node: NodeSnapshot) -> str:
    count = len(node.running)
    if not node.is_alive:
        return f"{words.plural(count, 'task')} to be rescued by another node" if count else "ran nothing"
    if not node.slots:
        return f"{count:,} taken"
    return f"{count:,} taken, {max(0, node.slots - count):,} free"


def _task_row(task: TaskRecord, node: str, now: datetime) -> list[str]:
    return [str(task.id), node, _running_for(task, now), task.type, words.subject(task)]


def _running_for(task: TaskRecord, now: datetime) -> str:
    return "" if task.started_at is None else words.duration(max(now - task.started_at, timedelta()))


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
