"""A program that is killed in its second batch: ``python -m tests.runtime.errors.killed_retry store``."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Sequence

from taskmill import Scheduler
from taskmill.model.task import Described
from taskmill.verbs import control


async def main(store: str) -> None:
    control.REVIVE_BITE = 10
    async with Scheduler(store) as scheduler:
        whole = scheduler._store.revive_all
        batches = 0

        async def revive_all(ids: Sequence[int], now: int) -> list[Described]:
            nonlocal batches
            batches += 1
            if batches == 2:
                os.kill(os.getpid(), signal.SIGKILL)
            return await whole(ids, now)

        scheduler._store.revive_all = revive_all  # type: ignore[method-assign]
        await scheduler.retry_where(status="dead_letter")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
