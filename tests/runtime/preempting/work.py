"""Work that takes time, for tests of preemption."""

from __future__ import annotations

import asyncio
from typing import Any

from taskmill import Context, Domain
from taskmill.testing import ManualClock


class Work:
    """A domain of tasks that take time and record what happens to them."""

    def __init__(self, clock: ManualClock, **options: Any) -> None:
        self.domain = Domain("d")
        self.log: list[tuple[str, str, float]] = []

        @self.domain.task(**options)
        async def work(ctx: Context, name: str, seconds: float = 10) -> str:
            self._note("start", name, clock)
            done = int(ctx.saved.get("done", 0))
            try:
                for second in range(done, round(seconds)):
                    await clock.sleep(1)
                    await ctx.save(done=second + 1)
            except asyncio.CancelledError:
                self._note("stop", name, clock)
                raise
            self._note("end", name, clock)
            return name

        self.task = work

    def _note(self, what: str, name: str, clock: ManualClock) -> None:
        self.log.append((what, name, clock.monotonic()))

    def of(self, what: str) -> list[tuple[str, float]]:
        return [(name, at) for kind, name, at in self.log if kind == what]
