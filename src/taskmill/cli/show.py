"""``taskmill show``: everything that is known about one task."""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Iterator
from typing import Any

from taskmill import HistoryRecord, TaskRecord
from taskmill.cli import machine_output, screen, words
from taskmill.cli.refusal import DONE, WRONG, Refusal
from taskmill.cli.store_file import add_file_and_ids, chosen_file_and_ids, opened

SUMMARY = "Show everything about one task"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_file_and_ids(parser, "one")


def execute(arguments: argparse.Namespace) -> int:
    file, ids = chosen_file_and_ids(arguments.file_and_ids)
    if len(ids) != 1:
        raise Refusal("show takes one id", WRONG)
    record = asyncio.run(_get(file, ids[0]))
    if arguments.json:
        machine_output.print_document(record)
    else:
        screen.facts(_facts(record))
    return DONE


async def _get(file: str, id: int) -> TaskRecord | HistoryRecord:
    async with opened(file) as scheduler:
        return await scheduler.get(id)


def _facts(record: TaskRecord | HistoryRecord) -> Iterator[tuple[str, str]]:
    ended = record if isinstance(record, HistoryRecord) else None
    yield "task", str(record.id)
    yield "type", record.type
    if isinstance(record, HistoryRecord):
        yield "ending", str(record.ending)
    else:
        yield "status", str(record.status)
    for name, text in (("label", record.label), ("key", record.key), ("group", record.group)):
        if text:
            yield name, text
    yield "priority", words.priority(record)
    if record.tags:
        yield "tags", ", ".join(f"{name}={value}" for name, value in record.tags.items())
    if record.parent_id is not None:
        yield "parent", str(record.parent_id)
    yield "attempts", f"{record.attempt}, of them retries {record.retries}" if record.retries else str(record.attempt)
    yield "submitted", words.local_time(record.created_at)
    for name, at in (("due", record.run_at), ("expires", record.expires_at), ("started", record.started_at)):
        if at is not None:
            yield name, words.local_time(at)
    if ended is not None:
        yield "ended", words.local_time(ended.ended_at)
        if ended.duration is not None:
            yield "took", words.duration(ended.duration)
    if record.progress is not None:
        yield "progress", words.progress(record.progress)
    yield "payload", _laid_out(record.payload)
    if record.last_error and (ended is None or record.last_error != ended.error):
        yield "last error", record.last_error
    if ended is not None:
        if ended.error:
            yield "error", ended.error
        if ended.result is not None:
            yield "result", _laid_out(ended.result)


def _laid_out(value: Any) -> str:
    """On one line if it is short."""
    short = words.compact(value)
    return short if len(short) <= 80 else json.dumps(value, indent=2, ensure_ascii=False)
