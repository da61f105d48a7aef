"""A handler that a worker process imports by name, and that is preempted."""

from __future__ import annotations

import threading

from taskmill import Context, Domain

domain = Domain("preempted")


@domain.task(run_in="process")
def slow(ctx: Context) -> int:
    part = int(ctx.saved.get("part", 0)) + 1
    ctx.save(part=part)
    ctx.progress(0.5, "saved")
    if part == 1:
        threading.Event().wait(60)
    return part


@domain.task
async def urgent() -> None: ...
