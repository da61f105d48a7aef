"""``run()`` is cancelled while a turn is being committed: what it has committed is applied all the same."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest

from taskmill import Domain, Retry, Scheduler, StoreError
from taskmill.events import TaskCompleted
from taskmill.model.turn import Turn, TurnResult
from taskmill.runtime.loop import DispatchLoop
from taskmill.runtime.planning import Planner
from taskmill.store.sql import ledger
from taskmill.store.sql.connection import Connection
from taskmill.store.sql.group_commit import Batch
from taskmill.store.sqlite import writer

domain = Domain("d", retry=Retry.none())


@domain.task
async def double(number: int) -> int:
    return 2 * number


class HeldTurn:
    """Holds the transaction of the first turn that ends a task, until it is let go or, with ``fails``, fails."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, fails: bool = False) -> None:
        self.is_held = asyncio.Event()
        self.go = threading.Event()
        self._fails = fails
        self._commit_turn = ledger.commit_turn
        self._loop = asyncio.get_running_loop()
        monkeypatch.setattr(ledger, "commit_turn", self._hold)
        # Every turn is committed in the thread.
        monkeypatch.setattr(writer, "INLINE_ROWS", 0)
        monkeypatch.setattr(writer, "BUSY_INLINE_ROWS", 0)

    def _hold(self, connection: Connection, turn: Turn, now: int, node: str | None = None) -> TurnResult:
        result = self._commit_turn(connection, turn, now, node)
        if turn.judged and not self.go.is_set():
            self._loop.call_soon_threadsafe(self.is_held.set)
            assert self.go.wait(30)
            if self._fails:
                raise ValueError("this turn fails")
        return result


@pytest.mark.parametrize("times", [1, 20])
async def test_its_verdicts_are_announced_and_its_claims_cost_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    held = HeldTurn(monkeypatch)
    async with Scheduler(tmp_path / "tasks.db", domains=[domain], max_concurrency=1) as scheduler:
        handles = [await double.submit(number) for number in range(3)]
        completed = scheduler.events(TaskCompleted)
        running = asyncio.create_task(scheduler.run())
        await held.is_held.wait()
        waiter = asyncio.create_task(handles[0].result())
        for _ in range(times):
            running.cancel()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        assert not running.done(), "it waits for the commit"
        held.go.set()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert await asyncio.wait_for(waiter, 5) == 0
        assert (await asyncio.wait_for(anext(completed), 5)).task_id == handles[0].id
        assert {task.status for task in await scheduler.tasks()} <= {"pending"}
        await scheduler.run_until_idle()
        for handle in handles:
            record = await handle.wait()
            assert (record.attempt, record.retries) == (1, 0)


async def test_a_timeout_around_it_stays_a_timeout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held = HeldTurn(monkeypatch)
    async with Scheduler(tmp_path / "tasks.db", domains=[domain]) as scheduler:
        handle = await double.submit(1)
        timer = asyncio.timeout(None)

        async def time_out() -> None:
            await held.is_held.wait()
            timer.reschedule(0)
            await asyncio.sleep(0)
            held.go.set()

        timing = asyncio.create_task(time_out())
        with pytest.raises(TimeoutError):
            async with timer:
                await scheduler.run()
        await timing
        assert await handle.result() == 2


async def test_if_the_turn_fails_its_outcomes_are_committed_by_the_shutdown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = HeldTurn(monkeypatch, fails=True)
    async with Scheduler(tmp_path / "tasks.db", domains=[domain]) as scheduler:
        handle = await double.submit(1)
        running = asyncio.create_task(scheduler.run())
        await held.is_held.wait()
        running.cancel()
        held.go.set()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert await handle.result() == 2


def cancel_while(monkeypatch: pytest.MonkeyPatch, owner: type, name: str, running: list[asyncio.Task[None]]) -> None:
    """Cancel the task in ``running``, once, while the method ``name`` handles a turn that starts tasks."""
    original = getattr(owner, name)

    def cancelling(self: Any, *args: Any) -> Any:
        result = original(self, *args)
        turn = result if isinstance(result, Turn) else args[0]
        if turn.starts.claims and running:
            running.pop().cancel()
        return result

    monkeypatch.setattr(owner, name, cancelling)


@pytest.mark.parametrize(("owner", "name"), [(Planner, "plan"), (DispatchLoop, "_apply")], ids=["planned", "applied"])
@pytest.mark.parametrize("is_file", [False, True], ids=["memory", "file"])
async def test_a_cancellation_while_a_turn_is_planned_or_applied_ends_the_run_gracefully(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_file: bool, owner: type, name: str
) -> None:
    go_on = asyncio.Event()

    slow = Domain("slow", retry=Retry.none())

    @slow.task
    async def wait() -> None:
        await go_on.wait()

    running: list[asyncio.Task[None]] = []
    cancel_while(monkeypatch, owner, name, running)
    async with Scheduler(
        tmp_path / "tasks.db" if is_file else ":memory:", domains=[slow], shutdown_grace=60
    ) as scheduler:
        handle = await wait.submit()
        run = asyncio.create_task(scheduler.run())
        running.append(run)
        while running:
            await asyncio.sleep(0)
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(run, 30)
        if (record := await handle.record()).state == "pending":
            # The cancellation came before the task was claimed.
            await scheduler.run_until_idle()
            record = await handle.wait()
        assert (record.state, record.attempt, record.retries) == ("completed", 1, 0)


@pytest.mark.one_engine("on a server the transaction is in a thread, which no signal interrupts")
@pytest.mark.parametrize("is_file", [False, True], ids=["memory", "file"])
def test_an_interrupt_inside_a_turn_ends_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_file: bool
) -> None:
    commit_turn, left = ledger.commit_turn, [KeyboardInterrupt()]

    def interrupted(connection: Connection, turn: Turn, now: int, node: str | None = None) -> TurnResult:
        if turn.starts.claims and left:
            raise left.pop()
        return commit_turn(connection, turn, now, node)

    monkeypatch.setattr(ledger, "commit_turn", interrupted)

    async def main() -> None:
        async with Scheduler(tmp_path / "tasks.db" if is_file else ":memory:", domains=[domain]) as scheduler:
            await double.submit(1)
            await scheduler.run()

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(main())
    assert not left


@pytest.mark.one_engine("on a server the transaction is in a thread, which no signal interrupts")
@pytest.mark.parametrize("is_file", [False, True], ids=["memory", "file"])
def test_an_interrupt_as_a_transaction_begins_keeps_no_other_request_from_its_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_file: bool
) -> None:
    begin, left = writer.Writer._belongs_on_loop, [KeyboardInterrupt()]

    def interrupted(self: writer.Writer, batch: Batch) -> bool:
        here = begin(self, batch)
        if batch.rows and left:
            raise left.pop()
        return here

    asked: list[asyncio.Future[Any]] = []

    async def ask() -> None:
        monkeypatch.setattr(writer.Writer, "_belongs_on_loop", interrupted)
        monkeypatch.setattr(writer.Writer, "largest_batch", 1)
        asked.extend(map(asyncio.ensure_future, (double.submit(1), scheduler.group("g").pause())))
        await asyncio.wait(asked)

    scheduler = Scheduler(tmp_path / "tasks.db" if is_file else ":memory:", domains=[domain])
    with asyncio.Runner() as runner:
        runner.run(scheduler.__aenter__())
        with pytest.raises(KeyboardInterrupt):
            runner.get_loop().run_until_complete(ask())
        answers = runner.run(asyncio.wait_for(asyncio.gather(*asked, return_exceptions=True), 10))
        (refused,) = (str(answer) for answer in answers if isinstance(answer, StoreError))
        assert "the program was interrupted; this request may or may not be stored" in refused
        runner.run(double.submit(2))
        runner.run(scheduler.__aexit__(None, None, None))


@pytest.mark.one_engine("a lock of another process on a file")
async def test_a_cancelled_run_does_not_wait_for_the_write_lock_of_another_process(tmp_path: Path) -> None:
    began, go_on = asyncio.Event(), asyncio.Event()
    held = Domain("held")

    @held.task
    async def hold() -> None:
        began.set()
        await go_on.wait()

    async with Scheduler(tmp_path / "tasks.db", domains=[domain, held], shutdown_grace=0.1) as scheduler:
        handle = await hold.submit()
        running = asyncio.create_task(scheduler.run())
        await began.wait()
        other = sqlite3.connect(tmp_path / "tasks.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        go_on.set()
        submitting = asyncio.create_task(double.submit(1))
        async with asyncio.timeout(20):
            while not running.done():
                running.cancel()
                await asyncio.sleep(0.01)
        other.execute("ROLLBACK")
        other.close()
        assert (await submitting).kind == "inserted"
        await scheduler.run_until_idle()
        assert (await handle.record()).state == "completed"
