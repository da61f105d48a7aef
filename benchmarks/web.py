"""``web_slowest_page_1m_ms`` and ``web_50_pages_cost``: how long the page's requests take, and what open pages cost.

The first makes every request of the page about a file with 1,000,000 waiting and 1,000,000 ended tasks, on a server
without its cache, and gives the slowest median. The second drains a queue while another process has 50 pages open, each
with a stream of events and overviews, as the page's script opens it; it gives the lost part of the rate.

The pages need the processor too, as browsers on the same machine do. So there is a control: the same pages, opened at
a ``taskmill web`` beside the dispatcher. ``web_50_pages_cpu_cost`` is the part of the dispatcher's own CPU time that it
spends on pages. What pages need in a second depends little on the rate, so all three are greater on a busy machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Generator, Sequence
from functools import partial
from pathlib import Path
from typing import Literal

import httpx

from benchmarks.measuring import ROOT, Report, Settings, Target, child_environment, interleaved, ratios, summary
from benchmarks.workload import domain, fill
from taskmill import Scheduler
from taskmill.web import dashboard, page_server

ASKED = 5
PAGES = 50
GROUPS = 100
DAY_MS = 86_400_000
TOKEN = "a-token-for-benchmarks"
INTERVALS = 2
"""Times as many tasks as in other drains, so that one takes longer than the interval between two overviews."""

Side = Literal["alone", "beside", "watched"]
COST = Target("<=", 0.05)
SIDES: tuple[Side, ...] = ("alone", "beside", "watched")

QUESTIONS = {
    "overview": "api/overview",
    "newest": "api/tasks",
    "oldest": "api/tasks?sort=oldest",
    "middle": "api/tasks?before=1000000",
    "active": "api/tasks?state=active",
    "pending": "api/tasks?state=pending&group=group-00007",
    "running": "api/tasks?state=running",
    "paused": "api/tasks?state=paused",
    "ended": "api/tasks?state=ended",
    "completed_of_group": "api/tasks?state=completed&group=group-00007",
    "ended_of_no_group": "api/tasks?state=ended&group=nothing",
    "none_of_group": "api/tasks?group=nothing",
    "failed": "api/tasks?state=failed",
    "type": "api/tasks?type=bench::noop&state=ended",
    "tag": "api/tasks?tag=user%3Dann",
    "tag_and_group": "api/tasks?tag=user%3Dann&group=nothing",
    "key": "api/tasks?key=key-77777",
    "task": "api/tasks/1500000",
    "ended_task": "api/tasks/500000",
    "types": "api/suggest?field=type",
    "groups_suggested": "api/suggest?field=group&prefix=group-000",
    "tags": "api/suggest?field=tag&prefix=user=",
    "keys": "api/suggest?field=key&prefix=key-7",
    "groups": "api/groups",
    "schedules": "api/schedules",
    "machine": "api/machine",
    "errors": "api/errors",
    "nodes": "api/nodes",
    "system": "api/system",
}

_NUMBERS = "WITH RECURSIVE n (i) AS (SELECT ?1 UNION ALL SELECT i + 1 FROM n WHERE i < ?2)"
_ENDED = f"""
{_NUMBERS}
INSERT INTO taskmill_history (
    id, type, key, group_name, priority, ending, payload, tags, attempt, retries, created_at, started_at, ended_at,
    duration_ms
)
SELECT i, 'bench::noop', 'key-' || i, printf('group-%05d', i % {GROUPS}), 128,
    CASE WHEN i % 100 = 0 THEN 'failed' ELSE 'completed' END, '{{"i": 1}}', '{{"user": "ann"}}', 1, 0,
    ?3 - (?2 - i) * ?4 - 500, ?3 - (?2 - i) * ?4 - 20, ?3 - (?2 - i) * ?4, 20
FROM n
"""
_WAITING = f"""
{_NUMBERS}
INSERT INTO taskmill_task (
    id, type, key, group_name, priority, urgency, status, payload, tags, created_at, queued_at
)
SELECT i, 'bench::noop', 'key-' || i, printf('group-%05d', i % {GROUPS}), 128, 128, 'pending', '{{"i": 1}}',
    '{{"user": "ann"}}', ?3, ?3
FROM n
"""


def measure(settings: Settings) -> Report:
    report = Report()
    file = settings.new_file("web")
    _fill_file(file, settings.backlog)
    took = asyncio.run(_ask(file))
    for name, times in took.items():
        report.about[f"web_{name}_ms"] = summary(times)
    report.add("web_slowest_page_1m_ms", max(map(statistics.median, took.values())), Target("<=", 200))
    settings.discard(file)
    cpu: dict[str, list[float]] = {side: [] for side in SIDES}
    rates = interleaved(
        3 * settings.rounds,  # the rates of single rounds differ by a fifth
        {side: partial(_rate, settings, side, cpu[side]) for side in SIDES},
    )
    report.add("web_50_pages_cost", _lost(report, "web_50_pages_cost", rates["watched"], rates["alone"]), COST)
    for name, less, more in (
        ("web_50_pages_beside_cost", rates["beside"], rates["alone"]),
        ("web_50_pages_cpu_cost", cpu["alone"], cpu["watched"]),
    ):
        report.add(name, _lost(report, name, less, more))
    report.about |= {f"web_{side}_rate": summary(rates[side]) for side in SIDES}
    report.about |= {f"web_{side}_cpu_us": summary(cpu[side]) for side in SIDES}
    return report


def _lost(report: Report, name: str, less: Sequence[float], more: Sequence[float]) -> float:
    lost = [1 - ratio for ratio in ratios(less, more)]
    report.about[name] = summary(lost)
    return statistics.median(lost)


def _fill_file(file: Path, tasks: int) -> None:
    """Store as many ended and as many waiting tasks, with the counts that the code keeps about them."""

    async def create() -> None:
        async with Scheduler(file, domains=[domain]):
            """Create the tables."""

    asyncio.run(create())
    now = int(time.time() * 1000)
    with contextlib.closing(sqlite3.connect(file)) as connection, connection:
        connection.execute(_ENDED, (1, tasks, now, max(1, DAY_MS // tasks)))
        connection.execute(_WAITING, (tasks + 1, 2 * tasks, now))
        connection.execute(
            "INSERT INTO taskmill_tally SELECT type, group_name, ending, count(*), count(*), sum(duration_ms)"
            " FROM taskmill_history GROUP BY 1, 2, 3"
        )
        connection.execute(
            "INSERT INTO taskmill_load SELECT group_name, type, status, count(*) FROM taskmill_task GROUP BY 1, 2, 3"
        )
        for table in ("task", "history"):
            connection.execute(f"INSERT INTO taskmill_{table}_tag SELECT 'user', 'ann', id FROM taskmill_{table}")
    connection.close()


async def _ask(file: Path) -> dict[str, list[float]]:
    """Return the milliseconds of each answer, by question."""
    took: dict[str, list[float]] = {name: [] for name in QUESTIONS}
    async with Scheduler(file, domains=[domain], retention=None) as scheduler:
        page = dashboard(scheduler)
        headers = {"authorization": f"Bearer {page.token}"}
        transport = httpx.ASGITransport(app=page)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=headers) as client:
            for turn in range(ASKED + 1):
                for name, path in QUESTIONS.items():
                    page._backend.answers.forget()
                    page._backend.activities.forget()
                    began = time.perf_counter()
                    response = await client.get(f"/{path}", timeout=60)
                    if turn:
                        took[name].append((time.perf_counter() - began) * 1000)
                    if response.status_code not in (200, 404):
                        raise AssertionError(f"{path}: {response.status_code} {response.text[:200]}")
    return took


def _rate(settings: Settings, side: Side, cpu: list[float]) -> float:
    """Return the tasks per second; append the microseconds of CPU time per task in this process."""
    file = settings.new_file("watched")
    try:
        rate, used = asyncio.run(_drain(file, INTERVALS * settings.tasks, side))
    finally:
        settings.discard(file)
    cpu.append(used)
    return rate


async def _drain(file: Path, tasks: int, side: Side) -> tuple[float, float]:
    async with Scheduler(file, domains=[domain]) as scheduler:
        await fill(scheduler, tasks)
        async with _pages(scheduler, file, side):
            began, used = time.perf_counter(), time.process_time()
            await scheduler.run_until_idle()
            return tasks / (time.perf_counter() - began), (time.process_time() - used) / tasks * 1e6


@contextlib.asynccontextmanager
async def _pages(scheduler: Scheduler, file: Path, side: Side) -> AsyncGenerator[None, None]:
    """Keep pages open, at a server in this process or at one beside it, or open none."""
    if side == "alone":
        yield
        return
    async with contextlib.AsyncExitStack() as stack:
        if side == "watched":
            server = page_server(scheduler, port=0, token=TOKEN)
            address = (await stack.enter_async_context(server.running())).address
        else:
            beside = stack.enter_context(
                _process("taskmill", "web", str(file), "--port", "0", "--token", TOKEN, "--json")
            )
            address = json.loads(await _line(beside))["address"]
        await _line(stack.enter_context(_process("benchmarks.web_pages", address, TOKEN, str(PAGES))))
        yield


@contextlib.contextmanager
def _process(*arguments: str) -> Generator[subprocess.Popen[str], None, None]:
    with subprocess.Popen(
        [sys.executable, "-m", *arguments], stdout=subprocess.PIPE, text=True, env=child_environment(), cwd=ROOT
    ) as process:
        try:
            yield process
        finally:
            process.terminate()


async def _line(process: subprocess.Popen[str]) -> str:
    """Return the next line that a process prints: it is ready."""
    assert process.stdout is not None
    return await asyncio.to_thread(process.stdout.readline)
