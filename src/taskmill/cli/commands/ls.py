"""``taskmill ls``: list active tasks, or ended ones, a page at a time."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import structs

from taskmill import Ending, HistoryRecord, Status
from taskmill.cli import output, tables
from taskmill.cli.columns import COLUMNS, ORDERS, FoundTasks, Record
from taskmill.cli.filters import add_filter_arguments, filters_from
from taskmill.cli.orphans import orphans
from taskmill.cli.output import DONE, WRONG, Refusal
from taskmill.cli.store_file import add_file, chosen_file
from taskmill.reading import Reader, ask

DEFAULT_LIMIT = 50
NUMBERS = frozenset({"id", "took", "attempts", "retries", "parent"})
LONG = frozenset({"type", "group", "key", "tags", "about"})
"""Columns whose long cells lose their middle on a narrow terminal."""
MINOR = ("attempts", "priority", "took")
"""Columns that a narrow terminal loses first, unless they were chosen."""

ACTIVE = ("id", "status", "type", "group", "priority", "attempts", "when", "about")
ENDED = ("id", "ending", "type", "group", "priority", "took", "ended", "about")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_file(parser)
    parser.add_argument("--history", action="store_true", help="list ended tasks; implied by an ending as --status")
    parser.add_argument("--before", metavar="ID", type=int, help="the page that ends before this task")
    parser.add_argument("--after", metavar="ID", type=int, help="the page that starts after this task")
    parser.add_argument("--sort", metavar="COLUMN", choices=ORDERS, help=f"sort this page: {', '.join(ORDERS)}")
    parser.add_argument("--columns", metavar="A,B", help=f"show these columns: any of {', '.join(COLUMNS)}")
    add_filter_arguments(parser, limit=DEFAULT_LIMIT)


def execute(arguments: argparse.Namespace) -> int:
    filters = filters_from(arguments)
    if arguments.history and arguments.status in set(Status):
        raise Refusal(f"--history lists ended tasks, and {arguments.status} is not an ending", WRONG)
    ended = arguments.history or arguments.status in set(Ending)
    columns = _chosen_columns(arguments.columns, ENDED if ended else ACTIVE)
    filters |= {name: id for name in ("before", "after") if (id := getattr(arguments, name)) is not None}
    listed = ask(chosen_file(arguments.file), lambda reader: _find(reader, filters, ended=ended))
    if arguments.sort is not None:
        listed = listed._replace(records=sorted(listed.records, key=ORDERS[arguments.sort]))
    if arguments.json:
        output.print_json([_fields(record, listed) for record in listed.records])
    elif listed.records:
        rows = [[COLUMNS[name](record, listed) for name in columns] for record in listed.records]
        minor = MINOR if arguments.columns is None else ()
        tables.table(columns, rows, numbers=NUMBERS, middle=LONG, minor=minor)
        if listed.next_page:
            output.say(f"… there are more than {len(rows):,}; {listed.next_page} lists the next, --limit 0 all")
    else:
        output.say("no ended task matches" if ended else "no active task matches; --history lists ended tasks")
    return DONE


def _chosen_columns(given: str | None, usual: Sequence[str]) -> Sequence[str]:
    if given is None:
        return usual
    names = [name.strip() for name in given.split(",")]
    for name in names:
        if name not in COLUMNS:
            raise Refusal(f"--columns knows {', '.join(COLUMNS)}; got {name!r}", WRONG)
    return list(dict.fromkeys(names))


async def _find(reader: Reader, filters: Mapping[str, Any], *, ended: bool) -> FoundTasks:
    """Read a page, and one task more to see whether there is another page."""
    limit = filters.get("limit")
    wanted: dict[str, Any] = {**filters, "limit": None if limit is None else limit + 1}
    found: Sequence[Record] = await reader.history(**wanted) if ended else await reader.tasks(**wanted)
    listed = FoundTasks(found) if limit is None or len(found) <= limit else _page(found, filters, ended=ended)
    # Only these can lack a handler or a process, and a snapshot takes a while in a long queue.
    if not any(record.state in ("pending", "running") for record in listed.records):
        return listed
    snapshot = await reader.snapshot()
    return listed._replace(unhandled=snapshot.unhandled, left={task.id for task in orphans(snapshot)})


def _page(found: Sequence[Record], filters: Mapping[str, Any], *, ended: bool) -> FoundTasks:
    """Leave out the additional task, which is the furthest from where the page begins."""
    is_before, is_after = "before" in filters, "after" in filters
    # Active tasks are listed in the order of their ids, and ended ones in the opposite order.
    turned_back = is_after and not is_before if ended else is_before and not is_after
    records = found[1:] if turned_back else found[:-1]
    option = "--after" if ended is turned_back else "--before"
    return FoundTasks(records, f"{option} {records[0 if turned_back else -1].id}")


def _fields(record: Record, listed: FoundTasks) -> dict[str, Any]:
    """Return the fields of a record, and for an active task whether it lacks a handler or its process is gone."""
    fields = {**structs.asdict(record), "state": record.state}
    if isinstance(record, HistoryRecord):
        return fields
    return {**fields, "no_handler": record.type in listed.unhandled, "process_is_gone": record.id in listed.left}
