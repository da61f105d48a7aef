"""``taskmill cron``: list the cron tasks with their schedule, last outcome and next run."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from datetime import UTC, datetime

from taskmill import Schedule
from taskmill.cli import output, text
from taskmill.cli.output import DONE
from taskmill.cli.store_file import add_file, chosen_file, opened
from taskmill.cron import CronExpression

HEADINGS = ["name", "runs", "last run", "outcome", "next run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_file(parser)


def execute(arguments: argparse.Namespace) -> int:
    schedules, running = asyncio.run(_look(chosen_file(arguments.file)))
    if arguments.json:
        output.print_json([_document(schedule) for schedule in schedules])
    elif schedules:
        rows = [_row(schedule, running) for schedule in schedules]
        output.table(HEADINGS, rows, wrap=frozenset(HEADINGS))
    else:
        output.say("no cron tasks are declared in this file")
    return DONE


async def _look(file: str) -> tuple[Sequence[Schedule], AbstractSet[int]]:
    """Return the cron tasks, and the ids of all running tasks."""
    async with opened(file) as scheduler:
        snapshot = await scheduler.snapshot()
    schedules = [schedule for schedule in snapshot.schedules if schedule.cron is not None]
    return schedules, {task.id for task in snapshot.running}


def _row(schedule: Schedule, running: AbstractSet[int]) -> list[str]:
    return [
        schedule.cron or "",
        _in_words(schedule),
        "never" if schedule.last_run is None else text.local_time(schedule.last_run),
        _outcome(schedule, running),
        _next_run(schedule.next_run),
    ]


def _in_words(schedule: Schedule) -> str:
    return CronExpression.parse(schedule.expression or "").in_words()


def _outcome(schedule: Schedule, running: AbstractSet[int]) -> str:
    """Return how the last run ended, and the task that runs or waits."""
    if schedule.task_id in running:
        return f"running as task {schedule.task_id}"
    parts = [] if schedule.last_outcome is None else [str(schedule.last_outcome)]
    if schedule.task_id is not None:
        parts.append(f"task {schedule.task_id} waits")
    return ", ".join(parts)


def _next_run(at: datetime | None) -> str:
    if at is None:
        return "never"
    # An overdue task means that nothing dispatches the file.
    return f"{'' if at > datetime.now(UTC) else 'due since '}{text.local_time(at)}"


def _document(schedule: Schedule) -> dict[str, object]:
    return {
        "name": schedule.cron,
        "expression": schedule.expression,
        "in_words": _in_words(schedule),
        "type": schedule.type,
        "task_id": schedule.task_id,
        "runs": schedule.runs,
        "last_run": schedule.last_run,
        "last_outcome": schedule.last_outcome,
        "next_run": schedule.next_run,
    }
