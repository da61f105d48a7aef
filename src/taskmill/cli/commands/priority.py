"""``taskmill priority``: change the priority of tasks, by ids or by filters."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any

from taskmill import InvalidState, Scheduler, TaskNotFound
from taskmill.cli import bulk, quantities, text
from taskmill.cli.bulk import Action, Result
from taskmill.cli.filters import filters_from
from taskmill.cli.output import WRONG, Refusal


def add_arguments(parser: argparse.ArgumentParser) -> None:
    also = "; last a priority: a number from 0 (most urgent) to 255, or a name such as high"
    bulk.add_arguments(parser, "priority [-h] [FILE] [ID ...] PRIORITY [filters]", "FILE ID PRIORITY", also)


def execute(arguments: argparse.Namespace) -> int:
    if len(arguments.words) < 2 and not (arguments.words and filters_from(arguments)):
        raise Refusal("give the ids of tasks, or filters, and last the new priority, after FILE", WRONG)
    *words, value = arguments.words
    new = quantities.priority(value)
    return bulk.execute(arguments, words, _action(new))


async def _set_all(new: int, scheduler: Scheduler, ids: Sequence[int], _filters: dict[str, Any]) -> list[Result]:
    # At once, so that the tasks share transactions.
    return list(await asyncio.gather(*(_set(scheduler, id, new) for id in ids)))


async def _set(scheduler: Scheduler, id: int, new: int) -> Result:
    try:
        before = (await scheduler.get(id)).priority
        await scheduler.set_priority(id, new)
    except TaskNotFound as wrong:
        return Result(id, "not_found", str(wrong), is_refusal=True)
    except InvalidState as wrong:
        return Result(id, "ended", str(wrong), is_refusal=True)
    was = text.priority_level(before)
    sentence = f"task {id} now has the priority {text.priority_level(new)}; it was {was}"
    return Result(id, "changed", sentence, more={"priority": new, "previous": before})


def _action(new: int) -> Action:
    level = text.priority_level(new)
    return Action(
        verb=f"set the priority {level} for",
        doing="changing",
        of_dead=False,
        do=partial(_set_all, new),
        outcomes={"changed": f"now with the priority {level}"},
    )
