"""Processes that compete for a few keys: ``python -m tests.crash.rivals '{"role": …}'``.

Roles: ``rival`` stands by to dispatch and also supersedes, requeues, cancels and revives at random, until it
is killed or the parent says leave; ``drain`` runs everything to its end. Handlers and hooks record their starts and
ends, and the rest records calls and returns: each process in its own journal.

The durations of handlers, their clean-ups and their hooks are part of the load; nothing is awaited with them.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from pathlib import Path
from typing import Any

from taskmill import Context, Domain, GiveUp, Retry, Scheduler, Submission
from taskmill.errors import DuplicateTask, InvalidState
from tests.crash.journal import Journal
from tests.crash.orders import Asker, Deeds, Order, Parent, all_ended, received, say

KEYS = 3
"""Keys of each task type."""
VOICES = 4
"""How many callers a rival has at once, so that their submissions share transactions."""
OPERATIONS_A_WORD = 15
"""Number of operations after which a rival says "more"."""

PATIENT, PATIENCE = 0.5, 0.2
"""The fraction of submissions after which the ending is awaited, and for how many seconds at most."""

domain = Domain("rival", retry=Retry.constant(1, 0))


def by_name(name: str, marker: str, takes: float, how: str, hook: str) -> str:
    return name


def begins(ctx: Context, fact: str, marker: str) -> None:
    task = ctx.task
    key = f"{task.type} {task.key}"
    ctx.state(Journal).write(fact, id=task.id, attempt=ctx.attempt, key=key, marker=marker)


def ends(ctx: Context, fact: str, how: str) -> None:
    ctx.state(Journal).write(fact, id=ctx.task.id, attempt=ctx.attempt, how=how)


def result_of(marker: str, how: str) -> str:
    """Do what the submission asks of the handler."""
    if how == "fail":
        raise RuntimeError("never")
    if how == "give up":
        raise GiveUp("no use")
    return marker


@domain.task(key=by_name)
async def willing(ctx: Context, name: str, marker: str, takes: float, how: str, hook: str) -> str:
    """Stop as soon as a stop is requested."""
    begins(ctx, "start", marker)
    ended = how
    try:
        await asyncio.sleep(takes)
    except asyncio.CancelledError:
        ended = "stopped"
        raise
    finally:
        ends(ctx, "end", ended)
    return result_of(marker, how)


@domain.task(key=by_name, retry=Retry.constant(2, 0.01))
async def tidy(ctx: Context, name: str, marker: str, takes: float, how: str, hook: str) -> str:
    """Take some time to clean up, whether a stop was requested or not."""
    begins(ctx, "start", marker)
    ended = how
    try:
        await asyncio.sleep(takes)
    except asyncio.CancelledError:
        ended = "stopped"
        raise
    finally:
        try:
            await asyncio.sleep(takes / 2)
        except asyncio.CancelledError:
            ended = "stopped"
            raise
        finally:
            ends(ctx, "end", ended)
    return result_of(marker, how)


@domain.task(key=by_name)
def threaded(ctx: Context, name: str, marker: str, takes: float, how: str, hook: str) -> str:
    """Check now and then for a request to stop."""
    begins(ctx, "start", marker)
    until = time.monotonic() + takes
    while time.monotonic() < until:
        if ctx.cancelled:
            ends(ctx, "end", "stopped")
            ctx.check_cancelled()
        time.sleep(0.004)
    ends(ctx, "end", how)
    return result_of(marker, how)


@domain.task(key=by_name)
async def bare(ctx: Context, name: str, marker: str, takes: float, how: str, hook: str) -> str:
    """Have no hook."""
    result: str = await willing(ctx, name, marker, takes, how, hook)
    return result


@willing.on_cancel
@tidy.on_cancel
async def cancelled(ctx: Context, name: str, marker: str, takes: float, how: str, hook: str) -> None:
    begins(ctx, "hook", marker)
    if hook != "quick":
        await asyncio.sleep(takes / 4)
    ends(ctx, "hooked", hook)
    if hook == "raises":
        raise RuntimeError("a hook that fails")


@threaded.on_cancel
def cancelled_in_thread(ctx: Context, name: str, marker: str, takes: float, how: str, hook: str) -> None:
    begins(ctx, "hook", marker)
    if hook != "quick":
        time.sleep(takes / 4)
    ends(ctx, "hooked", hook)
    if hook == "raises":
        raise RuntimeError("a hook that fails")


TYPES: list[Any] = [willing, tidy, threaded, bare]
WITH_HOOK = {willing.name, tidy.name, threaded.name}


class Rival(Asker):
    """Makes random requests about the same few keys, and records calls and returns."""

    def __init__(self, scheduler: Scheduler, order: Order, journal: Journal) -> None:
        super().__init__(scheduler, order, journal)
        self._operations = itertools.count(1)

    async def act(self) -> None:
        deeds: Deeds = [
            (60, self._submit_one),
            (12, self._submit_batch),
            (18, self._cancel_some),
            (3, self._cancel_key),
            (3, self._revive_some),
        ]
        await self._do_one_of(deeds)
        if next(self._operations) % OPERATIONS_A_WORD == 0:
            say("more")

    def _submission(self) -> Submission:
        chance = self._random
        marker = self._name()
        (strategy,) = chance.choices(["supersede", "requeue", "skip", "reject"], [60, 20, 10, 10])
        options: dict[str, Any] = {"on_duplicate": strategy, "label": marker, "priority": chance.choice([64, 128])}
        if chance.random() < 0.2:
            options["ttl"] = chance.uniform(0.001, 0.06)
        if chance.random() < 0.1:
            options["run_after"] = chance.uniform(0.001, 0.06)
        (how,) = chance.choices(["work", "fail", "give up"], [75, 20, 5])
        (hook,) = chance.choices(["quick", "slow", "raises"], [40, 40, 20])
        task = chance.choice(TYPES).options(**options)
        name, takes = f"key {chance.randrange(KEYS)}", round(chance.choice([0.02, 0.1]) * chance.random(), 3)
        submission: Submission = task.prepare(name=name, marker=marker, takes=takes, how=how, hook=hook)
        return submission

    async def _submit_one(self) -> None:
        await self._ask(self._submission())

    async def _submit_batch(self) -> None:
        await self._ask(*[self._submission() for _ in range(self._random.randint(2, 6))])

    async def _ask(self, *submissions: Submission) -> None:
        """Submit, and record the call and the return."""
        batch = [
            {
                "marker": submission.payload["marker"],
                "key": f"{submission.type} {submission.payload['name']}",
                "strategy": submission.options["on_duplicate"],
            }
            for submission in submissions
        ]
        self._journal.write("ask", batch=batch)
        try:
            handles = await self._submit(submissions)
        except DuplicateTask:
            self._journal.write("refused", first=batch[0]["marker"])
            return
        answers = [{"id": one.id, "kind": one.kind, "replaced": one.replaced_id} for one in handles]
        self._journal.write("ack", first=batch[0]["marker"], answers=answers)
        self._known += [handle.id for handle in handles]
        if self._random.random() < PATIENT:
            await self._watch(self._random.choice(handles).id)

    async def _watch(self, id: int) -> None:
        """Wait for an ending, but not for long: the dispatcher may have died."""
        try:
            record = await self._scheduler.wait(id, timeout=PATIENCE)
        except TimeoutError:
            self._journal.write("not seen", id=id)
        else:
            self._journal.write("seen", id=id, ending=record.ending)

    async def _cancel_some(self) -> None:
        recent = self._known[-8:]
        if self._random.random() < 0.6:
            recent = [record.id for record in await self._scheduler.tasks(status="running", limit=8)] or recent
        if not recent:
            return
        await self._cancel(self._random.choice(recent))

    async def _cancel_key(self) -> None:
        type, key = self._random.choice(TYPES).name, f"key {self._random.randrange(KEYS)}"
        self._journal.write("cancelling", key=f"{type} {key}")
        for id in await self._scheduler.cancel_where(type=type, key=key):
            self._journal.write("cancelled", id=id, answer=True)

    async def _revive_some(self) -> None:
        if not (found := await self._scheduler.dead_letters(limit=5)):
            return
        id = self._random.choice(found).id
        self._journal.write("reviving", id=id)
        try:
            await self._scheduler.retry_dead(id)
        except (DuplicateTask, InvalidState) as wrong:
            self._journal.write("not revived", id=id, why=type(wrong).__name__)


def scheduler_for(order: Order, journal: Journal) -> Scheduler:
    return Scheduler(
        order.file,
        domains=[domain],
        max_concurrency=8,
        retention=None,
        state=[journal],
        cancel_timeout=20,
        durability="full",
    )


async def fight(order: Order, journal: Journal) -> None:
    """Stand by and act until the parent says leave; then return all running tasks to the queue at once."""
    async with scheduler_for(order, journal) as scheduler:
        say("open")
        dispatching = asyncio.ensure_future(scheduler.run(standby=True))
        told = asyncio.ensure_future(Parent().heard())
        rival = Rival(scheduler, order, journal)

        async def act() -> None:
            while not told.done():
                await rival.act()

        async with asyncio.TaskGroup() as group:
            for _ in range(VOICES):
                group.create_task(act())
        journal.write("leaving")
        await scheduler.stop(grace=0)
        await dispatching


async def drain(order: Order, journal: Journal) -> None:
    async with scheduler_for(order, journal) as scheduler:
        say("open")
        await scheduler.run_until_idle(timeout=60)
        # A scheduler that only waits for a later task is idle too.
        async with scheduler.running():
            await all_ended(scheduler)


def main() -> None:
    order = received()
    role = {"rival": fight, "drain": drain}[order.role]
    asyncio.run(role(order, Journal(Path(order.journal), order.who)))


if __name__ == "__main__":
    main()
