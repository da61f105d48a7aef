"""Values that a caller reads have the same Python types on both engines."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import msgspec

from taskmill import Aging, Context, Domain, Group, IoBudget, RateLimit, Retry, Scheduler
from taskmill.cron import Cron
from taskmill.model.status import Ending, Status
from taskmill.testing import ManualClock


def shape(value: Any) -> Any:
    """Return the types of a value and of everything in it."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: shape(getattr(value, field.name)) for field in dataclasses.fields(value)}
        return (type(value).__name__, fields)
    if isinstance(value, msgspec.Struct):
        return (type(value).__name__, {name: shape(getattr(value, name)) for name in value.__struct_fields__})
    if isinstance(value, Mapping):
        return {key: shape(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [type(value).__name__, *map(shape, value)]
    return type(value).__name__


async def everything_that_is_read(store: str) -> dict[str, Any]:
    """Return the shapes of everything that a scheduler returns, from a queue with tasks of many kinds."""
    clock, domain = ManualClock(), Domain("d", tags={"colour": "red"}, max_concurrency=5)
    seen: dict[str, Any] = {}

    @domain.task(io=IoBudget(disk_read=10), label="done")
    async def done(ctx: Context, n: int) -> dict[str, float]:
        ctx.record_io(disk_read=5, net_tx=7)
        ctx.progress.bytes(100)
        ctx.progress.advance(50)
        await clock.sleep(2)
        return {"n": n / 2}

    @domain.task(retry=Retry.none())
    async def fails() -> None:
        raise ValueError("no")

    @domain.task(group="g", rate=RateLimit.per_second(1))
    async def limited() -> None: ...

    @domain.task(timeout=1000)
    async def runs(ctx: Context) -> None:
        await ctx.save(step=1)
        ctx.progress(0.25, "quarter")
        await ctx.spawn(done.options(run_after=500).prepare(1))
        await clock.sleep(400)

    @domain.task
    async def nightly() -> None: ...

    settings: dict[str, Any] = {
        "groups": {"g": Group(weight=2, cap=3, min_slots=1)},
        "aging": Aging(),
        "cron": [Cron("night", "0 3 * * *", nightly, 5)],
        "clock": clock,
        "shutdown_grace": 0,
    }
    async with Scheduler(store, domains=[domain], **settings) as scheduler:
        listening = asyncio.create_task(listen(scheduler, seen))
        finished = [await done.options(key=f"k{n}", ttl=3600).submit(n) for n in range(3)]
        await fails.submit()
        async with scheduler.running():
            await clock.advance(5)
            running = await runs.submit()
            await done.options(every=60, run_after=60, max_runs=9).submit(1)
            waiting = [await limited.submit() for _ in range(4)]
            blocked = await done.options(depends_on=waiting[-1]).submit(2)
            await clock.advance(1)
            await scheduler.group("g").pause(duration=timedelta(hours=1))
            await scheduler.set_priority(waiting[-1].id, 7)
            handles = {"ended": finished[0], "running": running, "held": waiting[-1], "blocked": blocked}
            for name, handle in handles.items():
                seen[name] = shape(await handle.record())
                seen[f"explained {name}"] = shape(await handle.explain()) if name != "ended" else None
                seen[f"graph {name}"] = shape(await scheduler.graph(handle.id))
            seen["snapshot"] = shape(await scheduler.snapshot())
            seen["tasks"] = shape(await scheduler.tasks())
            seen["history"] = shape(await scheduler.history())
            seen["dead letters"] = shape(await scheduler.dead_letters())
            seen["found"] = shape(await scheduler.find("d::done", "k1"))
            seen["max_wait"] = shape(scheduler.max_wait(200))
            seen["tags"] = shape(await scheduler.tag_values("colour"))
            for type_name in ("d::done", "d::fails", "d::limited", "nothing"):
                seen[f"stats {type_name}"] = shape(await scheduler.stats(type_name))
            for status in (*Status, *Ending):
                seen[f"count {status}"] = shape(await scheduler.count(status=status))
                seen[f"count {status} by tag"] = shape(await scheduler.count(status=status, tags={"colour": "red"}))
            seen["count"] = shape(await scheduler.count())
            seen["cancelled"] = shape(await scheduler.cancel_where(group="g"))
            seen["pruned"] = shape(await scheduler.prune())
        await clock.advance(0)
        listening.cancel()
    return seen


async def listen(scheduler: Scheduler, seen: dict[str, Any]) -> None:
    async for event in scheduler.events():
        # The engines may start equal tasks in a different order.
        seen.setdefault(f"{type(event).__name__} {getattr(event, 'type', None)}", shape(event))


async def test_all_that_is_read_has_the_same_types_on_both_engines(postgres_store: str) -> None:
    on_file, on_server = await everything_that_is_read(":memory:"), await everything_that_is_read(postgres_store)
    assert on_file.keys() == on_server.keys()
    assert len(on_file) > 60
    # Only a cluster has nodes.
    for seen in (on_file, on_server):
        assert seen["snapshot"][1].pop("nodes")
    assert {name: (on_file[name], on_server[name]) for name in on_file if on_file[name] != on_server[name]} == {}
