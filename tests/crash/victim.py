"""The program that is killed: ``python -m tests.crash.victim '{"role": …}'``.

Roles: ``work`` dispatches and also submits, cancels and revives; ``drain`` runs everything to its end;
``client`` does all but dispatch until the parent says stop; ``dispatch`` and ``standby`` only dispatch; ``open`` opens
and closes the files that the parent names, ``run`` dispatches each of them until it is idle. Each call is recorded in
the journal before it is made, and its result after it returned.
"""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from taskmill import Retention, Scheduler, Submission
from taskmill.errors import AlreadyRunning, InvalidState, SubmissionError
from taskmill.model.status import OnDuplicateWord
from tests.crash import workload
from tests.crash.journal import Journal
from tests.crash.orders import Asker, Deeds, Order, Parent, all_ended, received, say

ENOUGH_WAITING = 120
"""With more waiting tasks than this, a round submits nothing and only runs what is there."""
SUBMITTERS = 3
KEYS = 4

KEEP_ALL_BUT_EXPIRED = Retention(max_count=None, per_status={"expired": Retention(max_count=10)})


class Customer(Asker):
    """Submits tasks of every kind, and cancels and revives them."""

    def __init__(self, scheduler: Scheduler, order: Order, journal: Journal) -> None:
        super().__init__(scheduler, order, journal)
        self._reviving = asyncio.Lock()

    async def act(self) -> None:
        deeds: Deeds = [
            (30, self._submit_plain),
            (10, self._submit_flaky),
            (12, self._submit_batch),
            (12, self._submit_keyed),
            (8, self._submit_later),
            (6, self._submit_fleeting),
            (1, self._submit_crunch),
            (4, self._submit_nonsense),
            (20, self._cancel_some),
            (6, self._revive_some),
            (2, self._prune),
            (8, self._look_around),
        ]
        await self._do_one_of(deeds)

    async def _ask(self, *submissions: Submission) -> None:
        """Submit, and record the call and the return."""
        markers = [submission.payload["marker"] for submission in submissions]
        types = [submission.type for submission in submissions]
        self._journal.write("ask", markers=markers, types=types)
        try:
            handles = await self._submit(submissions)
        except SubmissionError as wrong:
            self._journal.write("refused", markers=markers, why=type(wrong).__name__)
            return
        self._journal.write(
            "ack",
            markers=markers,
            ids=[handle.id for handle in handles],
            kinds=[handle.kind for handle in handles],
        )
        self._known += [handle.id for handle in handles]

    def _plain(self) -> Submission:
        submission: Submission = self._random.choice(workload.PLAIN).prepare(marker=self._name())
        return submission

    def _keyed(self, on_duplicate: OnDuplicateWord) -> Submission:
        task = workload.keyed.options(on_duplicate=on_duplicate, priority=self._random.choice([64, 128]))
        return task.prepare(marker=self._name(), name=f"key {self._random.randrange(KEYS)}")

    async def _submit_plain(self) -> None:
        await self._ask(self._plain())

    async def submit_poison(self) -> None:
        await self._ask(workload.poison.prepare(marker=self._name()))

    async def _submit_flaky(self) -> None:
        await self._ask(workload.flaky.prepare(marker=self._name(), fails=self._random.randint(1, 3)))

    async def _submit_batch(self) -> None:
        batch = [self._plain() for _ in range(self._random.randint(2, 6))]
        fault = self._random.random()
        if fault < 0.2:
            batch.insert(self._random.randrange(len(batch)), self._keyed("reject"))
        elif fault < 0.3:
            batch.append(Submission(workload.flaky.name, {"marker": self._name(), "fails": "many"}))
        await self._ask(*batch)

    async def _submit_keyed(self) -> None:
        await self._ask(self._keyed(self._random.choice(["reject", "skip"])))

    async def _submit_later(self) -> None:
        task = workload.quick.options(run_after=self._random.uniform(0.01, 0.2))
        await self._ask(task.prepare(marker=self._name()))

    async def _submit_fleeting(self) -> None:
        await self._ask(workload.fleeting.prepare(marker=self._name()))

    async def _submit_crunch(self) -> None:
        await self._ask(workload.crunch.prepare(marker=self._name()))

    async def _submit_nonsense(self) -> None:
        payload = {"marker": self._name(), "fails": "many"}
        await self._ask(Submission(workload.flaky.name, payload))

    async def _cancel_some(self) -> None:
        recent = self._known[-12:]
        if running := await self._scheduler.tasks(status="running", limit=8):
            recent += [record.id for record in running if record.type in workload.WITH_HOOK]
        if not recent:
            return
        id = self._random.choice(recent)
        try:
            await self._cancel(id)
        except LookupError:
            self._journal.write("unknown", id=id)
        else:
            if self._order.role == "work" and self._random.random() < 0.3:
                record = await self._scheduler.wait(id, timeout=40)
                self._journal.write("seen", id=id, ending=record.ending)

    async def _revive_some(self) -> None:
        # One at a time, so that the recorded attempt is the one before the revival.
        async with self._reviving:
            found = await self._scheduler.dead_letters(type=workload.doomed.name, limit=5)
            if not found:
                return
            record = self._random.choice(found)
            self._journal.write("reviving", id=record.id, attempt=record.attempt)
            try:
                await self._scheduler.retry_dead(record.id)
            except InvalidState:
                return
            self._journal.write("revived", id=record.id, attempt=record.attempt)

    async def _prune(self) -> None:
        await self._scheduler.prune()

    async def _look_around(self) -> None:
        await self._scheduler.snapshot()
        await self._scheduler.tasks(tags={"made": "here"}, limit=20)
        await self._scheduler.history(limit=20)
        await self._scheduler.count(status="completed")
        await self._scheduler.find(workload.keyed.name, "key 1")


def scheduler_for(order: Order, journal: Journal) -> Scheduler:
    return Scheduler(
        order.file,
        domains=[workload.domain],
        max_concurrency=6,
        retention=KEEP_ALL_BUT_EXPIRED,
        state=[journal],
        cancel_timeout=20,
        durability="full",
    )


async def work(order: Order, journal: Journal) -> None:
    async with scheduler_for(order, journal) as scheduler:
        say("open")
        customer = Customer(scheduler, order, journal)
        if order.poison:
            await customer.submit_poison()
        async with scheduler.running():
            if await scheduler.count() < ENOUGH_WAITING:
                await _act_together(customer, order.actions)
            await all_ended(scheduler)


async def _act_together(customer: Customer, actions: int) -> None:
    async def act() -> None:
        for _ in range(actions):
            await customer.act()

    async with asyncio.TaskGroup() as group:
        for _ in range(SUBMITTERS):
            group.create_task(act())


async def drain(order: Order, journal: Journal) -> None:
    async with scheduler_for(order, journal) as scheduler:
        say("open")
        async with scheduler.running():
            await all_ended(scheduler)
        await scheduler.run_until_idle(timeout=60)


async def client(order: Order, journal: Journal) -> None:
    """Do everything but dispatch, until the parent says stop."""
    async with scheduler_for(order, journal) as scheduler:
        say("open")
        customer = Customer(scheduler, order, journal)
        told = asyncio.ensure_future(Parent().heard())
        while not told.done():
            if await scheduler.count() < ENOUGH_WAITING:
                await customer.act()
            else:
                await asyncio.sleep(0.01)


async def dispatch(order: Order, journal: Journal) -> None:
    """Dispatch until the parent says stop, or finish; report the first handler that starts here."""
    is_first = True

    def noticed() -> None:
        nonlocal is_first
        if is_first:
            is_first = False
            say("working")

    workload.noticed = noticed
    async with scheduler_for(order, journal) as scheduler:
        say("open")
        dispatching = asyncio.ensure_future(scheduler.run(standby=order.role == "standby"))
        told = asyncio.ensure_future(Parent().heard())
        await asyncio.wait([dispatching, told], return_when=asyncio.FIRST_COMPLETED)
        if dispatching.done():
            try:
                await dispatching
            except AlreadyRunning:
                say("already running")
                await told
                return
        if told.result() == "finish":
            await all_ended(scheduler)
        await scheduler.stop()
        await dispatching


async def open_files(order: Order, journal: Journal) -> None:
    """Open each file that the parent names, submit a task to it (or run its tasks), and close it."""
    parent = Parent()
    say("open")
    for number in itertools.count():
        file = await parent.heard()
        if file in ("", "stop"):
            return
        async with Scheduler(file, domains=[workload.domain], state=[journal]) as scheduler:
            if order.role == "run":
                await scheduler.run_until_idle()
            else:
                await scheduler.submit(workload.quick.prepare(marker=f"{order.who}-{number}"))
        say("done")


ROLES: dict[str, Callable[[Order, Journal], Coroutine[Any, Any, None]]] = {
    "work": work,
    "drain": drain,
    "client": client,
    "dispatch": dispatch,
    "standby": dispatch,
    "open": open_files,
    "run": open_files,
}


def main() -> None:
    order = received()
    journal = Journal(Path(order.journal), order.who)
    os.environ.update({workload.JOURNAL_PATH: order.journal, workload.JOURNAL_WHO: order.who})
    asyncio.run(ROLES[order.role](order, journal))


if __name__ == "__main__":
    main()
