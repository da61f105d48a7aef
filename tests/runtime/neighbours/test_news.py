"""Commits of another process reach the dispatcher, and new tasks reach it without a survey of all lanes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path

import pytest

from taskmill import Domain, GiveUp, Retry, Scheduler
from taskmill.dispatch import news
from taskmill.model import commit
from taskmill.model.turn import Turn, TurnResult
from taskmill.store.postgres import heartbeat
from taskmill.store.postgres import news as postgres_news
from taskmill.store.sql import ledger
from tests.acceptance.sqlite_library import sqlite3


class Two:
    """Two schedulers on one store: ``here`` dispatches with one slot, ``there`` does not."""

    here: Scheduler
    there: Scheduler

    def __init__(self) -> None:
        self.started: list[str] = []
        self.surveys = 0
        self.reached, self.go_on, self.looked = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.domain = domain = Domain("d")

        @domain.task(retry=Retry.none())
        async def step(name: str) -> None:
            self.started.append(name)
            if name == "hold":
                self.reached.set()
                await self.go_on.wait()
            if name == "fail" and self.started.count("fail") == 1:
                raise GiveUp

        @domain.task(retry=Retry.none())
        async def dies(name: str) -> None:
            self.started.append(name)
            if self.started.count(name) == 1:
                raise ValueError

        self.step, self.dies = step, dies

    def watch_turns(self) -> None:
        """Count the surveys, and set ``looked`` after each turn that has read the changes of other processes."""
        commit = self.here._store.turn

        async def watched(turn: Turn) -> TurnResult:
            result = await commit(turn)
            look = turn.look
            self.surveys += look.survey
            if look.survey or ((look.news is not None or look.queued) and not result.needs_survey):
                self.looked.set()
            return result

        self.here._store.turn = watched  # type: ignore[method-assign]

    async def until_settled(self) -> None:
        """Wait until the dispatcher knows all commits of the other so far, and count surveys from then on."""
        await (await self.there.submit(self.step.prepare("settled"))).wait(timeout=10)
        self.surveys = 0
        self.started.clear()

    @contextlib.asynccontextmanager
    async def noticed(self) -> AsyncGenerator[None, None]:
        """Wait until the dispatcher has noticed the changes made inside the block."""
        self.looked.clear()
        yield
        await asyncio.wait_for(self.looked.wait(), 10)

    async def until_started(self, *names: str) -> None:
        async with asyncio.timeout(20):
            while len(self.started) < len(names):
                await asyncio.sleep(0.01)
        assert self.started == list(names)


@pytest.fixture
async def two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Two]:
    # A node on a server makes a survey every ten seconds anyway, and if a notification is late.
    monkeypatch.setattr(heartbeat, "LOOK_ANYWAY", 10**9)
    monkeypatch.setattr(postgres_news, "PATIENCE", 30.0)
    two = Two()
    async with (
        Scheduler(tmp_path / "t.db", domains=[two.domain], max_concurrency=1, shutdown_grace=0) as two.here,
        Scheduler(tmp_path / "t.db", domains=[two.domain]) as two.there,
        two.here.running(),
    ):
        await two.here.submit(two.step.prepare("hold"))
        await asyncio.wait_for(two.reached.wait(), 10)
        two.watch_turns()
        yield two
        two.go_on.set()


async def test_new_tasks_of_another_process_start_without_a_survey(two: Two) -> None:
    two.go_on.set()
    await two.until_settled()
    for n in range(20):
        mine = await two.here.submit(two.step.options(group=f"g{n}").prepare(f"here {n}"))
        theirs = await two.there.submit(two.step.options(group=f"h{n}", key=f"k{n}").prepare(f"there {n}"))
        later = await two.there.submit(two.step.options(run_after=0.01).prepare(f"later {n}"))
        for handle in (mine, theirs, later):
            await handle.wait(timeout=10)
    assert two.surveys == 0
    assert len(two.started) == 60


async def test_many_new_tasks_of_another_process_are_found_by_a_survey(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "MOST_NEWS", 10)
    monkeypatch.setattr(commit, "MOST_QUEUED", 10)
    two.go_on.set()
    await two.until_settled()
    handles = await two.there.submit_many([two.step.prepare(str(n)) for n in range(30)])
    for handle in handles:
        await handle.wait(timeout=10)
    assert two.surveys == 1
    assert two.started == [*map(str, range(30))]


@pytest.mark.one_engine("a file is changed behind the back of taskmill")
async def test_changes_that_are_not_made_by_taskmill_are_found_in_the_end(
    two: Two, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(news, "MOST_NEWS_READ", 5)
    later = await two.here.submit(two.step.options(run_after=3600).prepare("later"))
    two.go_on.set()
    with sqlite3.connect(tmp_path / "t.db") as connection:
        connection.execute("UPDATE taskmill_task SET status = 'pending' WHERE id = ?", (later.id,))
    connection.close()
    for n in range(10):
        await (await two.there.submit(two.step.prepare(str(n)))).wait(timeout=10)
    await later.wait(timeout=10)


async def test_a_priority_that_another_process_changes_counts(two: Two) -> None:
    await two.here.submit(two.step.prepare("first"))
    second = await two.here.submit(two.step.prepare("second"))
    async with two.noticed():
        await two.there.set_priority(second.id, 10)
    two.go_on.set()
    await two.until_started("hold", "second", "first")


async def test_a_duplicate_of_another_process_raises_the_priority(two: Two) -> None:
    await two.here.submit(two.step.prepare("first"))
    await two.here.submit(two.step.options(key="k").prepare("second"))
    async with two.noticed():
        assert (await two.there.submit(two.step.options(key="k", priority=10).prepare("second"))).kind == "upgraded"
    two.go_on.set()
    await two.until_started("hold", "second", "first")


async def test_a_replacement_of_another_process_takes_the_place(two: Two) -> None:
    await two.here.submit(two.step.options(key="k").prepare("old"))
    await two.here.submit(two.step.prepare("other"))
    async with two.noticed():
        await two.there.submit(two.step.options(key="k", on_duplicate="supersede").prepare("new"))
    two.go_on.set()
    await two.until_started("hold", "new", "other")


async def test_a_task_that_a_cancellation_of_another_process_releases_starts(two: Two) -> None:
    awaited = await two.here.submit(two.step.options(run_after=3600).prepare("awaited"))
    await two.here.submit(two.step.options(depends_on=[awaited], on_dependency_failure="ignore").prepare("dependent"))
    await two.there.cancel(awaited.id)
    two.go_on.set()
    await two.until_started("hold", "dependent")


async def test_a_running_task_that_another_process_cancels_stops(two: Two) -> None:
    (running,) = await two.there.tasks(status="running")
    await two.here.submit(two.step.prepare("next"))
    assert await two.there.cancel(running.id)
    await two.until_started("hold", "next")


async def test_a_dead_letter_that_another_process_revives_runs(two: Two) -> None:
    two.go_on.set()
    dead = await two.here.submit(two.dies.prepare("dies"))
    assert (await dead.wait(timeout=10)).ending == "dead_letter"
    await (await two.there.retry_dead(dead.id)).result(timeout=10)


async def test_a_pause_and_a_resume_of_another_process_count(two: Two) -> None:
    async with two.noticed():
        await two.there.group("g").pause()
    paused = await two.there.submit(two.step.options(group="g").prepare("paused"))
    await two.there.submit(two.step.prepare("free"))
    two.go_on.set()
    await two.until_started("hold", "free")
    await two.there.group("g").resume()
    await paused.wait(timeout=10)


async def test_a_series_that_another_process_resumes_continues(two: Two) -> None:
    two.go_on.set()
    first = await two.here.submit(two.step.options(every=0.05).prepare("again"))
    await first.wait(timeout=10)
    await two.here.pause_recurring(first.id)
    await two.there.resume_recurring(first.id)
    count = len(two.started)
    async with asyncio.timeout(10):
        while len(two.started) < count + 2:
            await asyncio.sleep(0.01)
    await two.there.cancel_recurring(first.id)
