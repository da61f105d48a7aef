"""``taskmill.to_json`` returns the JSON of public values that the command line prints."""

from __future__ import annotations

import asyncio
import json
import math
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from taskmill import Context, Domain, Ending, IoBudget, Scheduler, to_json
from taskmill.events import TaskCompleted
from tests.acceptance.command_line import Here

work = Domain("work")


@work.task
async def double(ctx: Context, n: int) -> int:
    ctx.progress(0.5, "half")
    return 2 * n


async def test_records_events_snapshots_and_explanations_have_a_json_form(tmp_path: Path) -> None:
    async with Scheduler(tmp_path / "q.db", domains=[work]) as scheduler:
        events = scheduler.events(TaskCompleted)
        handle = await scheduler.submit(double.prepare(4))
        waiting = json.loads(to_json(await handle.explain()))
        active = json.loads(to_json(await handle.record()))
        await scheduler.run_until_idle()
        record = await handle.wait(10)
        ended = json.loads(to_json(record))
        event = await anext(events)
        announced = json.loads(to_json(event))
        snapshot = json.loads(to_json(await scheduler.snapshot()))
        listed = json.loads(to_json(await scheduler.history()))
    assert (active["status"], active["state"], active["payload"]) == ("pending", "pending", {"n": 4})
    assert (ended["ending"], ended["state"], ended["result"]) == ("completed", "completed", 8)
    assert datetime.fromisoformat(ended["ended_at"]) == record.ended_at
    assert record.duration is not None
    assert ended["duration"] == record.duration.total_seconds()
    assert (announced["event"], announced["seq"], announced["result"]) == ("TaskCompleted", event.seq, 8)
    assert next(iter(announced)) == "event"
    assert waiting["task_id"] == handle.id
    assert snapshot["counts"]["completed"] == 1
    assert listed == [ended]


def test_the_command_line_prints_the_same(here: Here, tmp_path: Path) -> None:
    path = tmp_path / "q.db"

    async def run() -> tuple[int, str]:
        async with Scheduler(path, domains=[work]) as scheduler:
            handle = await scheduler.submit(double.prepare(4))
            await scheduler.run_until_idle()
            return handle.id, to_json(await handle.record())

    id, record = asyncio.run(run())
    shown = here.answer("show", path, id)
    del shown["details"], shown["explanation"]
    assert shown == json.loads(record)
    assert here.answer("ls", path, "--history") == [json.loads(record)]


@dataclass
class Point:
    x: float


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (datetime(2030, 1, 2, 3, tzinfo=timezone(timedelta(hours=2))), '"2030-01-02T01:00:00+00:00"'),
        (timedelta(seconds=1.5), "1.5"),
        (Ending.DEAD_LETTER, '"dead_letter"'),
        (IoBudget(disk_read=1), '{"disk_read":1,"disk_write":0,"net_rx":0,"net_tx":0}'),
        ({"a": (1, 2), 3: None}, '{"a":[1,2],"3":null}'),
        ([Point(1.5), frozenset({1})], '[{"x":1.5},[1]]'),
        ([math.inf, math.nan], "[null,null]"),
        ("ä\n", '"ä\\n"'),
    ],
)
@pytest.mark.one_engine("no store is asked")
def test_each_value_has_one_form(value: Any, text: str) -> None:
    assert to_json(value) == text


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


async def test_a_deeply_nested_payload_or_result_spoils_no_list(tmp_path: Path) -> None:
    domain = Domain("deep")

    @domain.task
    async def echo(value: list[Any]) -> list[Any]:
        return value

    async with Scheduler(tmp_path / "q.db", domains=[domain]) as scheduler:
        handle = await echo.submit(nested(600))
        assert json.loads(to_json(await scheduler.tasks()))[0]["id"] == handle.id
        await scheduler.run_until_idle()
        assert to_json(await handle.record()).count("[") >= 1200
