"""``taskmill cancel``: end waiting tasks, ask running ones to stop."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from taskmill import Ending, HistoryRecord, Scheduler, TaskNotFound
from taskmill.cli import output
from taskmill.cli.output import DONE, REFUSED
from taskmill.cli.store_file import add_file_and_ids, chosen_file_and_ids, opened
from taskmill.cli.text import spoken


@dataclass(frozen=True)
class Result:
    """The result for one id. ``stopping``: it runs and was asked to stop. ``ended``: it had ended before."""

    id: int
    outcome: Literal["cancelled", "stopping", "ended", "not_found"]
    ending: Ending | None = None

    @property
    def sentence(self) -> str:
        match self.outcome:
            case "cancelled":
                return f"task {self.id} is cancelled"
            case "stopping":
                return f"task {self.id} is running and has been asked to stop"
            case "ended":
                return f"task {self.id} had already ended: {spoken(self.ending or '')}"
            case "not_found":
                return f"no task has the id {self.id}"

    @property
    def is_refusal(self) -> bool:
        return self.outcome in ("ended", "not_found")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_file_and_ids(parser, "several")


def execute(arguments: argparse.Namespace) -> int:
    file, ids = chosen_file_and_ids(arguments.file_and_ids)
    results = asyncio.run(_cancel_all(file, ids))
    if arguments.json:
        output.print_json(results)
    for result in results:
        if result.is_refusal:
            output.complain(result.sentence)
        elif not arguments.json:
            output.say(result.sentence)
    return REFUSED if any(result.is_refusal for result in results) else DONE


async def _cancel_all(file: str, ids: Sequence[int]) -> list[Result]:
    async with opened(file) as scheduler:
        return [await _cancel(scheduler, id) for id in ids]


async def _cancel(scheduler: Scheduler, id: int) -> Result:
    try:
        accepted = await scheduler.cancel(id)
        record = await scheduler.get(id)
    except TaskNotFound:
        return Result(id, "not_found")
    if not accepted and isinstance(record, HistoryRecord):
        return Result(id, "ended", record.ending)
    return Result(id, "cancelled" if isinstance(record, HistoryRecord) else "stopping")
