"""``taskmill priority``: change the priority of a task."""

from __future__ import annotations

import argparse
import asyncio

from taskmill.cli import output, quantities, text
from taskmill.cli.output import DONE, WRONG, Refusal
from taskmill.cli.store_file import VARIABLE, chosen_file_and_id, opened


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "taskmill priority [-h] [--json] [FILE] ID PRIORITY"
    parser.add_argument(
        "words",
        nargs="+",
        metavar="FILE ID PRIORITY",
        help=f"the database (may be left out when ${VARIABLE} is set), the id,"
        " and a number from 0 (most urgent) to 255 or a name such as high",
    )


def execute(arguments: argparse.Namespace) -> int:
    *file_and_id, value = arguments.words
    if not file_and_id:
        raise Refusal("give the id of a task and its new priority after FILE", WRONG)
    new = quantities.priority(value)
    file, id = chosen_file_and_id(file_and_id, "priority", "one id and one priority")
    before = asyncio.run(_set(file, id, new))
    if arguments.json:
        output.print_json({"id": id, "priority": new, "previous": before})
    else:
        was = text.priority_level(before)
        output.say(f"task {id} now has the priority {text.priority_level(new)}; it was {was}")
    return DONE


async def _set(file: str, id: int, value: int) -> int:
    async with opened(file) as scheduler:
        before = (await scheduler.get(id)).priority
        await scheduler.set_priority(id, value)
        return before
