"""``taskmill show``: show everything about one task."""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from taskmill import HistoryRecord, TaskRecord
from taskmill.cli import output, text
from taskmill.cli.output import DONE
from taskmill.cli.store_file import add_file_and_ids, chosen_file_and_id, opened


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_file_and_ids(parser, "one")


def execute(arguments: argparse.Namespace) -> int:
    file, id = chosen_file_and_id(arguments.file_and_ids, "show")
    record = asyncio.run(_get(file, id))
    if arguments.json:
        output.print_json(record)
    else:
        output.facts(_facts(record))
    return DONE


async def _get(file: str, id: int) -> TaskRecord | HistoryRecord:
    async with opened(file) as scheduler:
        return await scheduler.get(id)


def _facts(record: TaskRecord | HistoryRecord) -> Iterator[tuple[str, str]]:
    """Return names and values, without those that are empty."""
    ended = record if isinstance(record, HistoryRecord) else None
    yield from _shown(
        ("task", record.id),
        ("type", record.type),
        ("ending", record.ending) if isinstance(record, HistoryRecord) else ("status", record.status),
        ("label", record.label),
        ("key", record.key),
        ("group", record.group),
        ("priority", text.priority(record)),
        ("tags", ", ".join(f"{name}={value}" for name, value in record.tags.items())),
        ("parent", record.parent_id),
        ("attempts", record.attempt),
        ("retries", record.retries),
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
    if ended is None or record.last_error != ended.error:
        yield from _shown(("last error", record.last_error))
    if ended is not None:
        yield from _shown(("error", ended.error))
        if ended.result is not None:
            yield "result", _laid_out(ended.result)


def _shown(*pairs: tuple[str, object]) -> Iterator[tuple[str, str]]:
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
