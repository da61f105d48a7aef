"""``taskmill show``: show everything about one task: its record, its attempts, what it waits for, its neighbours."""

from __future__ import annotations

import argparse
import asyncio
import json
import shlex
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from msgspec import structs

from taskmill import Explanation, HistoryRecord, TaskDetails, TaskRecord
from taskmill.cli import output, text
from taskmill.cli.output import DONE
from taskmill.cli.store_file import add_file_and_ids, chosen_file_and_id, looking
from taskmill.cli.store_file import shown as shown_store
from taskmill.cli.views.attempt_errors import attempt_lines

MOST_NAMED = 10
"""The largest number of ids that are listed."""


class FoundTask(NamedTuple):
    """Everything that is known about a task. ``why`` is set until it has ended."""

    record: TaskRecord | HistoryRecord
    details: TaskDetails
    why: Explanation | None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_file_and_ids(parser, "one")


def execute(arguments: argparse.Namespace) -> int:
    file, id = chosen_file_and_id(arguments.file_and_ids, "show")
    shown = asyncio.run(_read(file, id))
    if arguments.json:
        record = {**structs.asdict(shown.record), "state": shown.record.state}
        output.print_json({**record, "details": shown.details, "explanation": shown.why})
    else:
        output.facts(_facts(shown, shlex.quote(shown_store(file))))
    return DONE


async def _read(file: str, id: int) -> FoundTask:
    async with looking(file) as reader:
        record, details = await reader.get(id), await reader.details(id)
        return FoundTask(record, details, None if isinstance(record, HistoryRecord) else await reader.explain(id))


def _facts(shown: FoundTask, store: str) -> Iterator[tuple[str, str]]:
    """Return names and values, without those that are empty."""
    record = shown.record
    ended = record if isinstance(record, HistoryRecord) else None
    yield from _given(
        ("task", record.id),
        ("type", record.type),
        ("ending", record.state) if ended else ("status", record.state),
        ("but" if record.state == "running" else "waits", _why(shown)),
        ("label", record.label),
        ("key", record.key),
        ("group", record.group),
        ("priority", text.priority(record)),
        ("tags", text.tags(record.tags)),
        ("submitted", record.created_at),
        ("due", record.run_at),
        ("expires", record.expires_at),
        ("started", record.started_at),
        ("ended", ended and ended.ended_at),
        ("took", ended and ended.duration),
        ("progress", record.progress and text.progress(record.progress, has_ended=ended is not None)),
        ("budget", text.io(record.io)),
        ("moved", ended and text.io(ended.actual_io)),
    )
    yield "payload", _laid_out(record.payload)
    if shown.details.saved:
        yield "saved", _laid_out(shown.details.saved)
    yield from _attempts(record)
    if ended is not None and ended.result is not None:
        yield "result", _laid_out(ended.result)
    yield from _neighbours(shown)
    if record.errors:
        yield "tracebacks", f"taskmill errors {store} {record.id}"
    if record.state == "dead_letter":
        yield "run it again", f"taskmill retry {store} {record.id}"
    calls = ["get", "details"] if ended else ["get", "details", "explain"]
    yield "in Python", "; ".join(f"await scheduler.{call}({record.id})" for call in calls)


def _why(shown: FoundTask) -> str:
    """Return what holds the task back; empty if nothing does, or if it has ended."""
    if shown.why is None:
        return ""
    return "; ".join(hold.detail for hold in shown.why.holds)


def _attempts(record: TaskRecord | HistoryRecord) -> Iterator[tuple[str, str]]:
    """Return the attempts of a task with their errors."""
    yield from _given(("attempts", record.attempt), ("retries", record.retries))
    yield from _given(("went wrong", "\n".join(attempt_lines(record.errors, tracebacks=False))))
    error = record.error if isinstance(record, HistoryRecord) else None
    if record.last_error != error:
        yield from _given(("last error", record.last_error))
    yield from _given(("error", error))


def _neighbours(shown: FoundTask) -> Iterator[tuple[str, str]]:
    """Return the tasks that are linked to this one."""
    details = shown.details
    waits_for = _ids([each.on_id for each in details.depends_on if each.open], "not ended")
    over = _ids([each.on_id for each in details.depends_on if not each.open], "ended")
    yield from _given(
        ("parent", shown.record.parent_id),
        ("children", text.counted(details.children) if details.children else ""),
        ("depends on", "; ".join(filter(None, [waits_for, over]))),
        ("needed by", _ids([each.task_id for each in details.dependents])),
        ("replaced", _ids(details.replaced)),
        ("replaced by", _ids(details.replaced_by)),
    )


def _ids(ids: Sequence[int], state: str = "") -> str:
    """Return ``task 3, 5, 9 (ended)``; of many only some are named."""
    if not ids:
        return ""
    named = ", ".join(map(str, ids[:MOST_NAMED]))
    more = f" and {len(ids) - MOST_NAMED:,} more" if len(ids) > MOST_NAMED else ""
    return f"{'task' if len(ids) == 1 else 'tasks'} {named}{more}" + (f" ({state})" if state else "")


def _given(*pairs: tuple[str, object]) -> Iterator[tuple[str, str]]:
    for name, value in pairs:
        match value:
            case None | "":
                continue
            case datetime():
                yield name, text.local_time(value)
            case timedelta():
                yield name, text.duration(value)
            case _:
                yield name, str(value)


def _laid_out(value: Any) -> str:
    """Return the value as JSON, on one line if it is short."""
    short = text.compact(value)
    return short if len(short) <= 80 else json.dumps(value, indent=2, ensure_ascii=False)
