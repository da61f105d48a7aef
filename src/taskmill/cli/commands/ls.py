"""``taskmill ls``: list active tasks, or ended ones."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from typing import Any

from msgspec import structs

from taskmill import Ending, HistoryRecord, Status, TaskRecord
from taskmill.cli import output, text
from taskmill.cli.output import DONE, WRONG, Refusal
from taskmill.cli.store_file import add_file, chosen_file, opened

DEFAULT_LIMIT = 50


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_file(parser)
    parser.add_argument(
        "--status", metavar="WORD", choices=[*map(str, Status), *map(str, Ending)], help="a status, or an ending"
    )
    parser.add_argument("--type", metavar="NAME", help="a task type such as sync::transfer")
    parser.add_argument("--domain", metavar="NAME")
    parser.add_argument("--group", metavar="NAME", help="'' for tasks without a group")
    parser.add_argument("--tag", metavar="K=V", action="append", default=[], help="may be repeated")
    parser.add_argument(
        "--limit", metavar="N", type=int, default=DEFAULT_LIMIT, help="at most N tasks, 0 for all (default: 50)"
    )
    parser.add_argument("--history", action="store_true", help="ended tasks; implied by an ending as --status")


def execute(arguments: argparse.Namespace) -> int:
    file = chosen_file(arguments.file)
    if arguments.limit < 0:
        raise Refusal("--limit must be at least 0", WRONG)
    if arguments.history and arguments.status in set(Status):
        raise Refusal(f"--history lists ended tasks, and {arguments.status} is not an ending", WRONG)
    tags = _tags(arguments.tag)
    ended = arguments.history or arguments.status in set(Ending)
    found, unhandled = asyncio.run(_find(file, arguments, tags, ended=ended))
    shown = found[: arguments.limit] if arguments.limit else found
    if arguments.json:
        output.print_json([_fields(record, unhandled) for record in shown])
    else:
        _print(shown, unhandled, ended=ended, more=len(found) > len(shown))
    return DONE


async def _find(
    file: str, arguments: argparse.Namespace, tags: dict[str, str], *, ended: bool
) -> tuple[Sequence[TaskRecord | HistoryRecord], Collection[str]]:
    """Return one task more than the limit, to see whether there are more, and the types without a handler."""
    filters: dict[str, Any] = {
        name: getattr(arguments, name)
        for name in ("status", "type", "domain", "group")
        if getattr(arguments, name) is not None
    }
    limit: int | None = arguments.limit + 1 if arguments.limit else None
    async with opened(file) as scheduler:
        if ended:
            return await scheduler.history(**filters, tags=tags, limit=limit), ()
        found = await scheduler.tasks(**filters, tags=tags, limit=limit)
        # Only pending tasks can lack a handler, and counting them takes a while in a long queue.
        may_lack = any(record.status is Status.PENDING for record in found)
        return found, (await scheduler.snapshot()).unhandled if may_lack else ()


def _tags(given: Sequence[str]) -> dict[str, str]:
    tags: dict[str, str] = {}
    for tag in given:
        name, equals, value = tag.partition("=")
        if not name or not equals:
            raise Refusal(f"--tag needs NAME=VALUE, got {tag!r}", WRONG)
        tags[name] = value
    return tags


def _fields(record: TaskRecord | HistoryRecord, unhandled: Collection[str]) -> dict[str, Any]:
    """Return the fields of a record, and for an active task whether its type has no handler."""
    fields = structs.asdict(record)
    return fields if isinstance(record, HistoryRecord) else {**fields, "no_handler": record.type in unhandled}


def _print(
    records: Sequence[TaskRecord | HistoryRecord], unhandled: Collection[str], *, ended: bool, more: bool
) -> None:
    if not records:
        output.say("no ended task matches" if ended else "no active task matches; --history lists ended tasks")
        return
    if ended:
        headings = ["id", "ending", "type", "group", "priority", "took", "ended", "about"]
    else:
        headings = ["id", "status", "type", "group", "priority", "attempts", "when", "about"]
    output.table(
        headings,
        [
            _ended_row(record) if isinstance(record, HistoryRecord) else _active_row(record, unhandled)
            for record in records
        ],
        numbers=frozenset({"id", "took", "attempts"}),
    )
    if more:
        output.say(f"… there are more than {len(records):,}; --limit 0 lists all")


def _active_row(record: TaskRecord, unhandled: Collection[str]) -> list[str]:
    return [
        str(record.id),
        str(record.status),
        f"{record.type} (no handler)" if record.type in unhandled else record.type,
        record.group or "-",
        text.priority(record),
        str(record.attempt),
        _when(record),
        _about(record),
    ]


def _when(record: TaskRecord) -> str:
    """Return how long it has run, when it is due, or when it was submitted."""
    if record.status is Status.RUNNING and record.started_at is not None:
        return f"since {text.duration(datetime.now(UTC) - record.started_at)}"
    if record.status is Status.SCHEDULED and record.run_at is not None:
        return text.ago(record.run_at)
    return text.ago(record.created_at)


def _about(record: TaskRecord) -> str:
    parts = [text.subject(record)]
    if record.status is Status.RUNNING and record.progress is not None:
        parts.insert(0, text.progress(record.progress))
    elif record.last_error:
        parts.append(text.first_line(record.last_error))
    return " · ".join(filter(None, parts))


def _ended_row(record: HistoryRecord) -> list[str]:
    why = text.first_line(record.error) if record.error else ""
    return [
        str(record.id),
        str(record.ending),
        record.type,
        record.group or "-",
        text.priority(record),
        "-" if record.duration is None else text.duration(record.duration),
        text.ago(record.ended_at),
        " · ".join(filter(None, [text.subject(record), why])),
    ]
