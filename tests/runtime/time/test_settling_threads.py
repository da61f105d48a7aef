"""``advance`` lets handlers in threads finish, however many run in turn and however slow the store is."""

from __future__ import annotations

import time

from taskmill import Domain, Scheduler
from taskmill.testing import ManualClock


async def test_handlers_in_threads_that_run_in_turn_all_finish_before_advance_returns() -> None:
    domain, clock, ended = Domain("turns"), ManualClock(), list[int]()

    @domain.task
    def work(number: int) -> None:
        time.sleep(0.1)  # real work, not a wait for the clock
        ended.append(number)

    async with Scheduler(domains=[domain], clock=clock, max_concurrency=1) as scheduler, scheduler.running():
        await scheduler.submit_many([work.prepare(number) for number in range(6)])
        await clock.advance(0)
        assert ended == list(range(6))
