"""``run()`` is cancelled while a turn is being committed: what it has committed is applied all the same."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from taskmill import Domain, Retry, Scheduler
from taskmill.events import TaskCompleted
from taskmill.model.turn import Turn, TurnResult
from taskmill.runtime.loop import DispatchLoop
from taskmill.runtime.planning import Planner
from taskmill.store.sql import ledger
from taskmill.store.sql.connection import Connection
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
