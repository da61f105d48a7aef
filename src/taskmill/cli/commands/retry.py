"""``taskmill retry``: return dead letters to the queue, by ids or by filters."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from typing import Any

from taskmill import DuplicateTask, InvalidState, Scheduler, TaskNotFound
from taskmill.cli import bulk
from taskmill.cli.bulk import Action, Result


def add_arguments(parser: argparse.ArgumentParser) -> None:
    bulk.add_arguments(parser, "retry [-h] [FILE] [ID ...] [filters]", "FILE ID")


def execute(arguments: argparse.Namespace) -> int:
    return bulk.execute(arguments, arguments.words, ACTION)


async def _retry(scheduler: Scheduler, ids: Sequence[int], _filters: dict[str, Any]) -> list[Result]:
    # At once, so that the tasks share transactions.
    return list(await asyncio.gather(*(_retry_one(scheduler, id) for id in ids)))


async def _retry_one(scheduler: Scheduler, id: int) -> Result:
    try:
        await scheduler.retry_dead(id)
    except TaskNotFound as wrong:
        return Result(id, "not_found", str(wrong), is_refusal=True)
    except InvalidState as wrong:
        return Result(id, "not_dead", str(wrong), is_refusal=True)
    except DuplicateTask as wrong:
        return Result(id, "duplicate", f"task {id}: {wrong}", is_refusal=True, more={"existing_id": wrong.existing_id})
    return Result(id, "retried", f"task {id} is in the queue again")


ACTION = Action(
    verb="retry",
    doing="retrying",
    of_dead=True,
    do=_retry,
    outcomes={"retried": "returned to the queue"},
)
