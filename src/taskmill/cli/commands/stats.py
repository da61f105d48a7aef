"""``taskmill stats``: show how tasks of a type ended, how long they took and what they moved, from history."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence

from taskmill import TypeStats
from taskmill.cli import output, tables, text
from taskmill.cli.output import DONE, REFUSED
from taskmill.cli.store_file import VARIABLE, chosen_file
from taskmill.reading import Reader, ask

MOST_TYPES = 100
"""How many types are listed if none is given."""
NUMBERS = frozenset({"ended", "completed", "failed", "takes"})


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "words",
        nargs="*",
        metavar="FILE TYPE",
        help=f"the database (default: ${VARIABLE}), then task types such as sync::transfer (default: the first 100)",
    )


def execute(arguments: argparse.Namespace) -> int:
    file, types = _order(arguments.words)
    found = ask(file, lambda reader: _find(reader, types))
    if not found and not arguments.json:
        output.say("no task has ended")
    if arguments.json:
        output.print_json(found)
    unknown = [type for type, stats in found.items() if not stats.count]
    known = {type: stats for type, stats in found.items() if stats.count}
    if known and not arguments.json:
        tables.table(
            ["type", "ended", "completed", "failed", "takes", "moves"],
            _rows(known),
            numbers=NUMBERS,
            middle=frozenset({"type"}),
        )
    for type in unknown:
        output.complain(f"no task of the type {type!r} has ended")
    return REFUSED if unknown else DONE


def _order(given: Sequence[str]) -> tuple[str, list[str]]:
    """Split FILE and types: a first word without ``::`` is the FILE."""
    file = given[0] if given and "::" not in given[0] else None
    return chosen_file(file), list(dict.fromkeys(given if file is None else given[1:]))


async def _find(reader: Reader, types: Sequence[str]) -> Mapping[str, TypeStats]:
    if types:
        return {type: await reader.stats(type) for type in types}
    every = {type: await reader.stats(type) for type in await reader.suggest("type", limit=MOST_TYPES)}
    return {type: stats for type, stats in every.items() if stats.count}


def _rows(found: Mapping[str, TypeStats]) -> list[list[str]]:
    return [
        [
            type,
            f"{stats.count:,}",
            f"{stats.completed:,}",
            f"{stats.failed:,} ({stats.failure_rate:.0%})" if stats.failed else "0",
            "-" if stats.avg_duration is None else text.duration(stats.avg_duration),
            text.io(stats.avg_io) or "-",
        ]
        for type, stats in found.items()
    ]
