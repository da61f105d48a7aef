"""The program that is recorded: ``python -m tests.power.workload '{"file": …}'``.

It dispatches, or only submits, and makes random requests. Each request is noted in the recording before it is made,
and its result after it returned. Requests about one thing (a key, a group, a task's priority, a series) are made by
one actor, one after the other, so that the recording says what may be stored at each moment.

The durations of handlers are part of the load; nothing is awaited with them.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import sys
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Literal

import msgspec

from taskmill import Context, Domain, GiveUp, Handle, Retry, Scheduler, Submission
from taskmill.errors import InvalidState, StoreError, SubmissionError, TaskFailed
from taskmill.events import TaskCancelled, TaskCompleted, TaskSuperseded
from taskmill.events import TaskFailed as AttemptFailed
from taskmill.model.status import OnDuplicateWord
from taskmill.observe.bus import Listener
from taskmill.store.sqlite import log
from tests.power.recorder import Notes

ACTORS = 3
KEYS = 3
CHILDREN = 2
STEPS = 3
LARGE_BATCH = 60
"""More tasks than the writer puts into a transaction on the loop."""

domain = Domain("power", retry=Retry.none())
notes = Notes()


class Order(msgspec.Struct):
    """The instructions for a recorded process."""

    file: str
    who: str
    seed: int
    deeds: int = 30
    """Number of requests of each actor."""
    dispatches: bool = True
    watches: int = 0
    """Instead of acting: submit this many tasks, one after the other, and wait for each result."""
    inherits: int = 0
    """This many tasks are already in the file, with the first ids; they count as acknowledged."""
    serves: int = 0
    """Instead of acting: dispatch until this many tasks have ended."""
    durability: Literal["full", "process"] = "full"


class Pace:
    """The longest duration of handlers, in seconds."""

    def __init__(self, longest: float) -> None:
        self._longest = longest

    async def work(self) -> None:
        await asyncio.sleep(random.uniform(0, self._longest))


@domain.task
async def plain(ctx: Context, marker: str) -> str:
    await ctx.state(Pace).work()
    return marker


@domain.task(key=lambda marker, key: key)
async def keyed(ctx: Context, marker: str, key: str) -> str:
    await ctx.state(Pace).work()
    return marker


@domain.task
async def saving(ctx: Context, marker: str) -> str:
    for step in range(ctx.saved.get("step", 0) + 1, STEPS + 1):
        await granted(f"saved {ctx.task.id}", step, ctx.save(step=step))
        await ctx.state(Pace).work()
    return marker


@domain.task
async def doomed(ctx: Context, marker: str) -> str:
    await ctx.state(Pace).work()
    raise GiveUp(marker)


@domain.task(fail_fast=False)
async def family(ctx: Context, marker: str) -> str:
    markers = [f"{marker}/{ctx.attempt}/{number}" for number in range(CHILDREN)]
    notes.write("ask", markers=markers)
    children = await ctx.spawn_many([plain.prepare(marker=child) for child in markers])
    notes.write("ack", markers=markers, ids=[child.id for child in children], replaced=[None] * CHILDREN)
    return marker


@family.finalize
async def family_done(ctx: Context, marker: str) -> str:
    return marker


@domain.task
async def ticking(ctx: Context, marker: str) -> str:
    await ctx.state(Pace).work()
    return marker


async def granted(register: str, value: Any, change: Awaitable[Any]) -> None:
    """Change something that has one value at a time, and note the request and its result."""
    notes.write("asking", register=register, value=value)
    await change
    notes.write("granted", register=register, value=value)


def scheduler_on(file: str, durability: Literal["full", "process"], pace: Pace) -> Scheduler:
    return Scheduler(
        file, domains=[domain], max_concurrency=6, retention=None, state=[pace], durability=durability, shutdown_grace=5
    )


class Actor:
    """Makes one request after the other."""

    def __init__(self, scheduler: Scheduler, who: str, seed: int) -> None:
        self._scheduler = scheduler
        self._who = who
        self._random = random.Random(seed)
        self._waiting: list[asyncio.Task[None]] = []
        self._numbers = itertools.count()
        self._known: list[int] = []
        self._held: list[int] = []
        """Ids of tasks in a group that stays paused."""
        self._series: list[int] = []

    @property
    def _group(self) -> str:
        return f"{self._who} works"

    @property
    def _hold(self) -> str:
        return f"{self._who} holds"

    async def prepare(self) -> None:
        """Pause one group permanently, and submit a task to it that keeps its key."""
        await granted(f"paused {self._hold}", True, self._scheduler.group(self._hold).pause())
        await self._ask(self._keyed("taken", hold=True, on_duplicate="skip"))

    async def act(self) -> None:
        deeds: list[tuple[int, Callable[[], Coroutine[Any, Any, None]]]] = [
            (20, self._submit),
            (8, self._submit_batch),
            (1, self._submit_large_batch),
            (5, self._submit_refused),
            (14, self._replace),
            (12, self._cancel),
            (8, self._save),
            (3, self._fail),
            (3, self._raise_family),
            (8, self._set_priority),
            (8, self._pause_or_resume),
            (8, self._tune),
            (5, self._recur),
            (5, self._change_series),
        ]
        (deed,) = self._random.choices([deed for _, deed in deeds], [weight for weight, _ in deeds])
        await deed()

    # Submitting

    def _marker(self) -> str:
        return f"{self._who}-{next(self._numbers)}"

    def _plain(self, *, hold: bool = False) -> Submission:
        group = self._hold if hold else self._random.choice(["", self._group])
        return plain.options(group=group).prepare(marker=self._marker())

    def _keyed(self, key: str, *, hold: bool, on_duplicate: OnDuplicateWord) -> Submission:
        task = keyed.options(on_duplicate=on_duplicate, group=self._hold if hold else "")
        return task.prepare(marker=self._marker(), key=f"{self._who} {key}")

    async def _ask(self, *submissions: Submission) -> list[Handle[Any]]:
        """Submit, and note the request and its result."""
        markers = [submission.payload["marker"] for submission in submissions]
        notes.write("ask", markers=markers)
        try:
            if len(submissions) == 1:
                handles = [await self._scheduler.submit(submissions[0])]
            else:
                handles = await self._scheduler.submit_many(submissions)
        except (SubmissionError, StoreError) as wrong:
            notes.write("refused", markers=markers, why=str(wrong))
            return []
        ids = [handle.id for handle in handles]
        notes.write("ack", markers=markers, ids=ids, replaced=[handle.replaced_id for handle in handles])
        self._known += ids
        return handles

    async def _submit(self) -> None:
        hold = self._random.random() < 0.3
        handles = await self._ask(self._plain(hold=hold))
        self._held += [handle.id for handle in handles if hold]
        self._await(handles)

    def _await(self, handles: Sequence[Handle[Any]]) -> None:
        for handle in handles:
            if self._random.random() < 0.5:
                self._waiting.append(asyncio.create_task(told_result(handle)))

    def leave(self) -> None:
        """Stop waiting for results."""
        for waiting in self._waiting:
            waiting.cancel()

    async def _submit_batch(self) -> None:
        self._await(await self._ask(*(self._plain() for _ in range(self._random.randint(2, 8)))))

    async def _submit_large_batch(self) -> None:
        await self._ask(*(self._plain() for _ in range(LARGE_BATCH)))

    async def _submit_refused(self) -> None:
        batch = [self._plain() for _ in range(3)]
        batch.insert(self._random.randrange(4), self._keyed("taken", hold=True, on_duplicate="reject"))
        await self._ask(*batch)

    async def _replace(self) -> None:
        key = self._random.randrange(KEYS)
        await self._ask(self._keyed(f"key {key}", hold=key == 0, on_duplicate="supersede"))

    async def _save(self) -> None:
        self._await(await self._ask(saving.options(group="").prepare(marker=self._marker())))

    async def _fail(self) -> None:
        self._await(await self._ask(doomed.options(group="").prepare(marker=self._marker())))

    async def _raise_family(self) -> None:
        self._await(await self._ask(family.options(group="").prepare(marker=self._marker())))

    # Changing

    async def _cancel(self) -> None:
        if self._known:
            id = self._random.choice(self._known[-10:])
            notes.write("cancelling", id=id)
            answer = await self._scheduler.cancel(id)
            notes.write("cancelled", id=id, answer=answer)

    async def _set_priority(self) -> None:
        if self._held:
            id, priority = self._random.choice(self._held), self._random.randrange(256)
            try:
                await granted(f"priority {id}", priority, self._scheduler.set_priority(id, priority))
            except InvalidState:
                # The task was cancelled.
                self._held.remove(id)

    async def _pause_or_resume(self) -> None:
        group = self._scheduler.group(self._group)
        paused = self._random.random() < 0.5
        await granted(f"paused {self._group}", paused, group.pause() if paused else group.resume())

    async def _tune(self) -> None:
        group = self._scheduler.group(self._group)
        number = self._random.randrange(1, 9)
        if self._random.random() < 0.5:
            await granted(f"weight {self._group}", number, group.set(weight=number))
        else:
            await granted(f"cap {self._group}", number, group.set(cap=number))

    async def _recur(self) -> None:
        every = self._random.choice([0.05, 3600])
        handles = await self._ask(ticking.options(group="", every=every).prepare(marker=self._marker()))
        self._series += [handle.id for handle in handles]

    async def _change_series(self) -> None:
        if not self._series:
            return
        id = self._random.choice(self._series)
        deed, value = self._random.choice(
            [
                (self._scheduler.pause_recurring, "paused"),
                (self._scheduler.resume_recurring, "runs"),
                (self._scheduler.cancel_recurring, "ended"),
            ]
        )
        try:
            await granted(f"series {id}", value, deed(id))
        except InvalidState:
            # Cancelling the occurrence has ended the series.
            self._series.remove(id)
        else:
            if value == "ended":
                self._series.remove(id)


async def told_result(handle: Handle[Any]) -> None:
    try:
        notes.write("ended", id=handle.id, ending="completed", result=await handle.result(), how="awaited")
    except TaskFailed as told:
        notes.write("ended", id=handle.id, ending=str(told.record.ending), result=None, how="awaited")


async def listen(events: Listener[Any], enough: int = 0) -> None:
    """Note what is announced to listeners."""
    endings = {TaskCancelled: "cancelled", TaskSuperseded: "superseded", AttemptFailed: "failed"}
    heard = 0
    async for event in events:
        if isinstance(event, TaskCompleted):
            notes.write("ended", id=event.task_id, ending="completed", result=event.result)
        else:
            notes.write("ended", id=event.task_id, ending=endings[type(event)], result=None)
        heard += 1
        if heard == enough:
            return


def inherited(number: int) -> str:
    return f"old-{number}"


async def live(order: Order) -> None:
    if order.inherits:
        markers, ids = [inherited(number) for number in range(order.inherits)], list(range(1, order.inherits + 1))
        notes.write("ask", markers=markers)
        notes.write("ack", markers=markers, ids=ids, replaced=[None] * order.inherits)
    async with scheduler_on(order.file, order.durability, Pace(0.003)) as scheduler:
        if order.watches:
            await watch(order)
        elif order.dispatches:
            events = scheduler.events(TaskCompleted, TaskCancelled, TaskSuperseded, AttemptFailed)
            listening = asyncio.create_task(listen(events, order.serves))
            async with scheduler.running():
                await (listening if order.serves else act_together(scheduler, order))
            listening.cancel()
        else:
            await act_together(scheduler, order)


async def watch(order: Order) -> None:
    for number in range(order.watches):
        marker = f"{order.who}-{number}"
        notes.write("ask", markers=[marker])
        handle = await plain.submit(marker)
        notes.write("ack", markers=[marker], ids=[handle.id], replaced=[None])
        await told_result(handle)


async def act_together(scheduler: Scheduler, order: Order) -> None:
    actors = [Actor(scheduler, f"{order.who}{number}", order.seed * ACTORS + number) for number in range(ACTORS)]

    async def act(actor: Actor) -> None:
        for number in range(order.deeds + 1):
            try:
                await (actor.act() if number else actor.prepare())
            except StoreError as wrong:
                # The disk has failed: the request may be stored or not.
                notes.write("failed", why=str(wrong))

    await asyncio.gather(*map(act, actors))
    for actor in actors:
        actor.leave()


def main() -> None:
    # Small, so that there are many checkpoints; not too small, because each of them syncs the log to the disk.
    log.CHECKPOINT_BYTES = 512 * 1024
    log.LOOK_EVERY = 2
    asyncio.run(live(msgspec.convert(json.loads(sys.argv[1]), Order)))


if __name__ == "__main__":
    main()
