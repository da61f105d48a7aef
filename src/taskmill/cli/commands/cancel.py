"""``taskmill cancel``: end waiting tasks, ask running ones to stop, by ids or by filters."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from taskmill import HistoryRecord, Scheduler, TaskNotFound
from taskmill.cli import bulk
from taskmill.cli.bulk import Action, Result
from taskmill.cli.text import spoken


def add_arguments(parser: argparse.ArgumentParser) -> None:
    bulk.add_arguments(parser, "cancel [-h] [FILE] [ID ...] [filters]", "FILE ID")


def execute(arguments: argparse.Namespace) -> int:
    return bulk.execute(arguments, arguments.words, ACTION)


async def _cancel(scheduler: Scheduler, ids: Sequence[int], filters: dict[str, Any]) -> list[Result]:
    if not filters:
        return [await _cancel_one(scheduler, id) for id in ids]
    between: dict[str, Any] = {"after": min(ids) - 1, "before": max(ids) + 1}
    cancelled = await scheduler.cancel_where(**filters, **between)
    still_active = {record.id for record in await scheduler.tasks(**between)}
    return [_stopping(id) if id in still_active else _cancelled(id) for id in cancelled]


async def _cancel_one(scheduler: Scheduler, id: int) -> Result:
    try:
        accepted = await scheduler.cancel(id)
        record = await scheduler.get(id)
    except TaskNotFound as wrong:
        return Result(id, "not_found", str(wrong), is_refusal=True)
    if not isinstance(record, HistoryRecord):
        return _stopping(id)
    if accepted:
        return _cancelled(id)
    sentence = f"task {id} had already ended: {spoken(record.ending)}"
    return Result(id, "ended", sentence, is_refusal=True, more={"ending": record.ending})


def _cancelled(id: int) -> Result:
    return Result(id, "cancelled", f"task {id} is cancelled", more={"ending": None})


def _stopping(id: int) -> Result:
    return Result(id, "stopping", f"task {id} is running and has been asked to stop", more={"ending": None})


ACTION = Action(
    verb="cancel",
    doing="cancelling",
    of_dead=False,
    do=_cancel,
    outcomes={"cancelled": "cancelled", "stopping": "asked to stop; running handlers end by themselves"},
)
