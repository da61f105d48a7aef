"""Handlers that do not stop with their scheduler: no node starts their tasks meanwhile, and no crash is counted."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Iterator

import psycopg
import pytest

from taskmill import Context, Domain, Scheduler, Submission, TaskRecord
from taskmill.store.postgres import lease
from tests.postgres.network import Network
from tests.warm_python import run as warm_run


class Stuck:
    """A handler that ignores requests to stop and ends when the test lets it; each node gets a domain of its own."""

    def __init__(self, address: str) -> None:
        self._address = address
        self.may_end = threading.Event()
        self.at_work = 0
        self.most_at_work = 0
        self.attempts: list[int] = []
        self.crashes = -1
        """The crashes of the task, as stored when the last attempt began."""

    def domain(self) -> Domain:
        domain = Domain("d")

        @domain.task
        def stuck(ctx: Context) -> int:
            self.at_work += 1
            self.most_at_work = max(self.most_at_work, self.at_work)
            self.attempts.append(ctx.attempt)
            self.crashes = _one(self._address, f"SELECT crashes FROM taskmill_task WHERE id = {ctx.task.id}")
            if ctx.attempt == 1:
                self.may_end.wait(60)
            self.at_work -= 1
            return ctx.attempt

        return domain


@pytest.fixture
def stuck(postgres_store: str) -> Iterator[Stuck]:
    stuck = Stuck(postgres_store)
    yield stuck
    stuck.may_end.set()


async def _until(what: Callable[[], object], seconds: float = 30.0) -> None:
    async with asyncio.timeout(seconds):
        while not what():
            await asyncio.sleep(0.01)


def _one(address: str, question: str) -> int:
    with psycopg.connect(address) as connection:
        found = connection.execute(question.encode()).fetchone()
    assert found is not None
    return int(found[0])


def _nodes(address: str) -> int:
    return _one(address, "SELECT count(*) FROM taskmill_node")


def _scheduler(address: str, stuck: Stuck) -> Scheduler:
    return Scheduler(address, domains=[stuck.domain()], shutdown_grace=0)


async def _leave_one_at_work(address: str, stuck: Stuck) -> int:
    """Run a scheduler until its handler has begun, close it while the handler still runs, and return the task id."""
    async with _scheduler(address, stuck) as scheduler, scheduler.running():
        handle = await scheduler.submit(Submission("d::stuck", {}))
        await _until(lambda: stuck.attempts)
    return handle.id


async def _result(scheduler: Scheduler, id: int) -> object:
    return (await scheduler.wait(id, timeout=30)).result


async def _status(scheduler: Scheduler, id: int) -> str:
    record = await scheduler.get(id)
    assert isinstance(record, TaskRecord)
    return str(record.status)


@pytest.mark.timeout(120)
async def test_a_lingering_task_starts_on_no_node_until_its_handler_has_ended_and_soon_after(
    postgres_store: str, stuck: Stuck
) -> None:
    id = await _leave_one_at_work(postgres_store, stuck)
    async with _scheduler(postgres_store, stuck) as other, other.running():
        await asyncio.sleep(2)
        before = list(stuck.attempts), await _status(other, id)
        stuck.may_end.set()
        result = await _result(other, id)
    assert before == ([1], "running")
    assert (stuck.attempts, stuck.most_at_work) == ([1, 2], 1)
    assert (result, stuck.crashes) == (2, 0)
    assert _nodes(postgres_store) == 0


@pytest.mark.timeout(120)
async def test_a_scheduler_that_runs_again_stays_alive_for_what_lingers_of_its_first_run(
    postgres_store: str, stuck: Stuck, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "LEASE", 3.0)
    async with _scheduler(postgres_store, stuck) as scheduler:
        async with scheduler.running():
            handle = await scheduler.submit(Submission("d::stuck", {}))
            await _until(lambda: stuck.attempts)
        async with scheduler.running():
            await asyncio.sleep(6)
            before = list(stuck.attempts)
            stuck.may_end.set()
            result = await _result(scheduler, handle.id)
    assert before == [1]
    assert (stuck.attempts, stuck.most_at_work) == ([1, 2], 1)
    assert (result, stuck.crashes) == (2, 0)
    assert _nodes(postgres_store) == 0


@pytest.mark.timeout(120)
async def test_what_lingers_is_kept_though_the_connection_is_cut_after_its_scheduler_was_closed(
    postgres_store: str, stuck: Stuck, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "LEASE", 5.0)
    with Network(postgres_store) as network:
        id = await _leave_one_at_work(network.address, stuck)
        network.cut()
        async with _scheduler(postgres_store, stuck) as other, other.running():
            await asyncio.sleep(8)
            before = list(stuck.attempts)
            stuck.may_end.set()
            result = await _result(other, id)
    assert before == [1]
    assert (stuck.attempts, stuck.most_at_work) == ([1, 2], 1)
    assert (result, stuck.crashes) == (2, 0)


@pytest.mark.timeout(120)
async def test_what_ends_with_its_program_runs_after_a_lease_and_has_not_crashed(
    postgres_store: str, stuck: Stuck, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "LEASE", 2.0)
    program = [sys.executable, "-m", "tests.postgres.lingering_node", postgres_store]
    await asyncio.to_thread(warm_run, program, check=True, timeout=60)
    async with _scheduler(postgres_store, stuck) as other, other.running():
        result = await _result(other, 1)
    assert (result, stuck.crashes) == (2, 0)


async def test_a_hook_that_ends_by_being_cancelled_is_returned_before_the_scheduler_has_stopped(
    postgres_store: str,
) -> None:
    domain = Domain("d")
    begun: list[int] = []
    asked: list[int] = []

    @domain.task
    async def work() -> None:
        begun.append(1)
        await asyncio.Event().wait()

    @work.on_cancel
    async def hook() -> None:
        asked.append(1)
        await asyncio.Event().wait()

    async with Scheduler(postgres_store, domains=[domain], shutdown_grace=0) as scheduler:
        async with scheduler.running():
            handle = await work.submit()
            await _until(lambda: begun)
            cancelling = asyncio.create_task(handle.cancel())
            await _until(lambda: asked)
        cancelling.cancel()
        status = await _status(scheduler, handle.id)
    assert status == "pending"
    assert _nodes(postgres_store) == 0


async def test_a_node_that_was_taken_for_dead_leaves_under_the_name_it_had_last(postgres_store: str) -> None:
    domain = Domain("d")

    @domain.task
    async def work() -> None:
        return

    async with Scheduler(postgres_store, domains=[domain]) as scheduler, scheduler.running():
        await work.submit()
        with psycopg.connect(postgres_store, autocommit=True) as connection:
            connection.execute("DELETE FROM taskmill_node")
        async with asyncio.timeout(30):
            while not _nodes(postgres_store):
                await work.submit()
                await asyncio.sleep(0.1)
    assert _nodes(postgres_store) == 0
