"""A task that was asked to stop, and whose type has no handler here, waits quietly for a process that has one."""

from __future__ import annotations

import pytest

from taskmill import Domain, Retry
from taskmill.model.turn import Turn, TurnResult
from taskmill.testing import ManualClock
from taskmill.testing.plugin import SchedulerFactory


async def test_a_hook_that_has_no_handler_here_waits_without_turns(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, any_store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    domain = Domain("d")
    cleaned: list[str] = []

    @domain.task(retry=Retry.constant(3, delay=3600))
    async def work() -> None:
        raise ValueError("again")

    @work.on_cancel
    async def clean_up() -> None:
        cleaned.append("up")

    first = await taskmill_scheduler(store=any_store, domains=[domain])
    handle = await work.submit()
    async with first.running():
        await manual_clock.advance(1)
    other = first if any_store == ":memory:" else await taskmill_scheduler(store=any_store, domains=[Domain("other")])
    turns, commit = 0, other._store.turn

    async def counted(turn: Turn) -> TurnResult:
        nonlocal turns
        turns += 1
        return await commit(turn)

    monkeypatch.setattr(other._store, "turn", counted)
    if other is not first:
        await first.close()
    async with other.running():
        await other.cancel(handle.id)
        for _ in range(50):
            await manual_clock.advance(0)
    assert turns < 20
    if other is not first:
        assert cleaned == []
        await other.close()
        last = await taskmill_scheduler(store=any_store, domains=[domain])
        await last.run_until_idle()
    assert cleaned == ["up"]
