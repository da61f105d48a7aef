"""``taskmill cron``: list the cron tasks with their schedule, last outcome and next run; run one now."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from datetime import UTC, datetime, timedelta

from taskmill import Schedule, TaskNotFound
from taskmill.cli import output, tables, text
from taskmill.cli.output import DONE, REFUSED, WRONG, Refusal
from taskmill.cli.store_file import VARIABLE, chosen_file, dispatcher_of, opened
from taskmill.cron import CronExpression
from taskmill.reading import Reader, ask

HEADINGS = ["name", "runs", "last run", "began at", "next run", "due at"]
MINOR = ["began at", "due at"]
"""Columns that a narrow terminal omits: the columns before them show the same times relative to now."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "taskmill cron [-h] [--json] [FILE]\n       taskmill cron [-h] [--json] [FILE] run NAME"
    parser.add_argument(
        "words",
        nargs="*",
        metavar="FILE",
        help=f"the database (default: ${VARIABLE}); then `run` and the name of a cron task, to run it once now",
    )


def execute(arguments: argparse.Namespace) -> int:
    file, name = _split(arguments.words)
    if name is not None:
        return _run_now(chosen_file(file), name, is_json=arguments.json)
    schedules, running = _look(chosen_file(file))
    if arguments.json:
        output.print_json([_document(schedule) for schedule in schedules])
    elif schedules:
        rows = [_row(schedule, running) for schedule in schedules]
        tables.table(HEADINGS, rows, wrap=frozenset(HEADINGS).difference(MINOR), minor=MINOR)
    else:
        output.say("no cron tasks are declared in this file")
    return DONE


def _split(words: list[str]) -> tuple[str | None, str | None]:
    """Return FILE and the name of the cron task to run. A file named ``run`` is written ``./run``."""
    file, rest = (None, words) if words and words[0] == "run" else (words[0] if words else None, words[1:])
    if not rest:
        return file, None
    if rest[0] != "run" or len(rest) != 2:
        raise Refusal("write `taskmill cron FILE`, or `taskmill cron FILE run NAME` with the name of one task", WRONG)
    return file, rest[1]


def _run_now(file: str, name: str, *, is_json: bool) -> int:
    id, dispatcher = asyncio.run(_fire(file, name))
    if is_json:
        output.print_json({"name": name, "task_id": id, "dispatched": dispatcher is not None})
        return DONE
    output.say(f"cron task {name} runs once as task {id}; its schedule is unchanged")
    if dispatcher is None:
        output.say("nothing dispatches this store now; it starts with the next dispatcher")
    return DONE


async def _fire(file: str, name: str) -> tuple[int, str | None]:
    async with opened(file) as scheduler:
        try:
            id = (await scheduler.run_cron(name)).id
        except TaskNotFound:
            names = [schedule.cron for schedule in (await scheduler.snapshot()).schedules if schedule.cron]
            known = f"declared are: {', '.join(names)}" if names else "no cron tasks are declared in this store"
            raise Refusal(f"no cron task is named {name!r}; {known}", REFUSED) from None
        return id, await dispatcher_of(scheduler)


def _look(file: str) -> tuple[Sequence[Schedule], AbstractSet[int]]:
    """Return the cron tasks, and the ids of all running tasks."""
    snapshot = ask(file, Reader.snapshot)
    schedules = [schedule for schedule in snapshot.schedules if schedule.cron is not None]
    return schedules, {task.id for task in snapshot.running}


def _row(schedule: Schedule, running: AbstractSet[int]) -> list[str]:
    return [
        schedule.cron or "",
        _in_words(schedule),
        _last_run(schedule, running),
        _instant(schedule.last_run),
        _next_run(schedule, running),
        _instant(schedule.next_run),
    ]


def _in_words(schedule: Schedule) -> str:
    return CronExpression.parse(schedule.expression or "").in_words()


def _last_run(schedule: Schedule, running: AbstractSet[int]) -> str:
    """Return how the last attempt ended and how long ago it began."""
    if schedule.task_id in running:
        return f"running as task {schedule.task_id}"
    if schedule.last_run is None:
        return "never"
    return f"{schedule.last_outcome or 'began'} {text.rough(datetime.now(UTC) - schedule.last_run)} ago"


def _next_run(schedule: Schedule, running: AbstractSet[int]) -> str:
    """Return in how long it runs next, and the task that waits for it."""
    if schedule.next_run is None:
        return "never"
    # An overdue task means that nothing dispatches the file.
    late = datetime.now(UTC) - schedule.next_run
    when = text.ago(schedule.next_run) if late < timedelta(seconds=1) else f"overdue {text.rough(late)}"
    waits = schedule.task_id is not None and schedule.task_id not in running
    return f"{when}, task {schedule.task_id}" if waits else when


def _instant(at: datetime | None) -> str:
    return "" if at is None else f"{at.astimezone():%Y-%m-%d %H:%M:%S}"


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
