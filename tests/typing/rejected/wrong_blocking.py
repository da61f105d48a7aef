"""Wrong settings and calls of a blocking scheduler. Every line with the mark, and no other, must be reported."""

from __future__ import annotations

from taskmill import Context, Domain, SchedulerSettings
from taskmill.blocking import Handle, Scheduler

domain = Domain("wrong")


@domain.task
def threaded(ctx: Context, path: str) -> int:
    return len(path)


def settings() -> None:
    Scheduler("tasks.db", max_concurency=2)  # refused
    Scheduler("tasks.db", max_concurrency="2")  # refused
    Scheduler("tasks.db", [domain])  # refused
    Scheduler("tasks.db", durability="sometimes")  # refused
    Scheduler("tasks.db", domains=domain)  # refused
    Scheduler("tasks.db", shutdown_grace=None)  # refused
    Scheduler(5)  # refused
    given: SchedulerSettings = {"domains": [domain], "max_concurrency": 2}
    Scheduler("tasks.db", **given)


def submitted() -> None:
    threaded.submit_sync(5)  # refused
    threaded.submit_sync()  # refused
    threaded.submit_sync("a", colour="red")  # refused
    threaded.submit_sync(b"a")  # refused
    threaded.submit_sync("a").result().upper()  # refused
    threaded.submit_sync("a").result().bit_length()


def submitted_to(scheduler: Scheduler) -> None:
    scheduler.submit(threaded.prepare("a")).result().upper()  # refused
    scheduler.submit_many([threaded.prepare("a")])[0].result().upper()  # refused
    scheduler.submit_many([threaded.prepare("a")]).result()  # refused
    scheduler.submit("wrong::threaded")  # refused
    scheduler.submit([threaded.prepare("a")])  # refused
    scheduler.submit_many(threaded.prepare("a"))  # refused
    handle: Handle[str] = scheduler.submit(threaded.prepare("a"))  # refused
    handles: list[Handle[str]] = scheduler.submit_many([threaded.prepare("a")])  # refused
    scheduler.submit(threaded.prepare("a")).result().bit_length()
    scheduler.submit_many([threaded.prepare("a")])[0].result().bit_length()
    handles.append(handle)


async def awaited(scheduler: Scheduler) -> None:
    await scheduler.submit(threaded.prepare("a"))  # refused
