"""``taskmill rate``: limit how often tasks of a type start; without a type, list all rate limits."""

from __future__ import annotations

import argparse
import asyncio

from taskmill import RateLimit
from taskmill.cli import output, quantities, tables, text
from taskmill.cli.output import DONE, WRONG, Refusal
from taskmill.cli.store_file import VARIABLE, chosen_file, opened
from taskmill.reading import Reader, ask


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "taskmill rate [-h] [--json] [FILE] [TYPE RATE [--burst N]]"
    parser.add_argument(
        "words",
        nargs="*",
        metavar="FILE [TYPE RATE]",
        help=f"the database (may be left out when ${VARIABLE} is set), a task type such as sync::transfer,"
        " and a rate such as 10/s, 100/min, 1/30s or none",
    )
    parser.add_argument(
        "--burst", metavar="N", type=int, help="how many may start at once (default: the number in the rate)"
    )


def execute(arguments: argparse.Namespace) -> int:
    given: list[str] = arguments.words
    if len(given) > 3:
        raise Refusal("rate takes FILE, a task type and a rate", WRONG)
    if len(given) < 2:
        if arguments.burst is not None:
            raise Refusal("--burst needs a task type and a rate", WRONG)
        return _list(chosen_file(given[0] if given else None), arguments)
    *file, type, rate = given
    limit = quantities.rate(rate, "a rate", arguments.burst)
    asyncio.run(_set(chosen_file(file[0] if file else None), type, limit))
    if arguments.json:
        output.print_json({"type": type, "rate": limit})
    elif limit is None:
        output.say(f"{type} has no rate limit of its own")
    else:
        output.say(f"{type} starts at most {text.rate(limit)}")
    return DONE


def _list(file: str, arguments: argparse.Namespace) -> int:
    limits = ask(file, Reader.snapshot).rates
    if arguments.json:
        output.print_json(limits)
    elif not limits:
        output.say("nothing has a rate limit")
    else:
        rows = [[text.rate(one.rate), f"{one.permits:,}", one.kind, text.group_name(one.name)] for one in limits]
        tables.table(["rate", "may start now", "of", "name"], rows, numbers=frozenset({"rate", "may start now"}))
    return DONE


async def _set(file: str, type: str, limit: RateLimit | None) -> None:
    async with opened(file) as scheduler:
        await scheduler.set_rate_limit(type, limit)
