"""The program that is killed while it runs families: ``python -m tests.crash.family_victim '{"role": …}'``.

Roles: ``work`` dispatches and also submits families, chains and series, and stops some of them, until all have
ended or the parent says leave; ``neighbour`` does all but dispatch; ``drain`` runs everything to its end; ``tour``
works without being killed and reports which of the named points it reached.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import Any

from taskmill import Scheduler, Status, Submission
from taskmill.errors import InvalidState, SubmissionError
from tests.crash import family_work, points
from tests.crash.family_work import TYPES, Plan
from tests.crash.journal import Journal
from tests.crash.orders import Asker, Deeds, Order, Parent, all_ended, received, say
from tests.crash.workload import JOURNAL_PATH, JOURNAL_WHO

ENOUGH_WAITING = 60
"""With more active tasks than this, a round submits nothing and only runs what is there."""
VOICES = 3
NAMES = 3
PATIENT, PATIENCE = 0.3, 0.3
"""The fraction of submissions after which the ending is awaited, and for how many seconds at most."""


class Elder(Asker):
    """Submits and stops families through a scheduler, and records calls and returns."""

    def __init__(self, scheduler: Scheduler, order: Order, journal: Journal) -> None:
        super().__init__(scheduler, order, journal)
        self._series: list[int] = []

    async def act(self) -> None:
        await self._do_one_of(self._deeds())

    async def act_in_every_way(self) -> None:
        for _, deed in self._deeds():
            await deed()

    def _deeds(self) -> Deeds:
        return [
            (30, self._submit_family),
            (18, self._submit_clan),
            (14, self._submit_chain),
            (8, self._submit_dependent),
            (10, self._submit_series),
            (24, self._cancel_some),
            (1, self._end_series),
            (3, self._pause_series),
        ]

    # What to submit

    def _leaf(self) -> Plan:
        chance = self._random
        (how,) = chance.choices(["work", "flaky", "fail", "give up"], [80, 12, 4, 4])
        (type,) = chance.choices(["leaf", "bare", "threaded"], [60, 20, 20])
        tidy = "poison" if self._order.role == "work" and chance.random() < 0.01 else "work"
        return Plan(type, takes=self._takes(), how=how, tidy=tidy, sibling=type == "leaf" and chance.random() < 0.1)

    def _takes(self) -> float:
        return round(self._random.choice([0.005, 0.05]) * self._random.random(), 3)

    def _family(self, depth: int = 2, type: str | None = None) -> Plan:
        chance = self._random
        if depth == 0 or (type is None and chance.random() < 0.4 * (2 - depth)):
            return self._leaf()
        type = type or chance.choice(["parent", "parent", "narrow", "threaded", "bare"])
        (how, finish) = (chance.choices(["work", "flaky", "give up"], [88, 9, 3])[0] for _ in range(2))
        return Plan(
            type,
            takes=self._takes(),
            how=how,
            finish=finish,
            fail_fast=chance.random() < 0.6,
            children=[self._family(depth - 1) for _ in range(chance.randint(1, 4))],
            more=[self._leaf() for _ in range(2)]
            if type not in ("threaded", "distant") and chance.random() < 0.25
            else [],
            in_a_row=chance.random() < 0.2,
            shares_keys=chance.random() < 0.2,
            remembers=type != "threaded" and chance.random() < 0.4,
        )

    def _prepared(self, plan: Plan, **options: Any) -> Submission:
        options = {"label": self._name(), "fail_fast": plan.fail_fast, **options}
        submission: Submission = TYPES[plan.type].options(**options).prepare(plan=plan)
        return submission

    # Submitting

    async def _ask(self, *submissions: Submission, **details: Any) -> list[int]:
        """Submit, and record the call and the return."""
        labels = [submission.options["label"] for submission in submissions]
        self._journal.write("ask", labels=labels, **details)
        try:
            handles = await self._submit(submissions)
        except SubmissionError as wrong:
            self._journal.write("refused", labels=labels, why=type(wrong).__name__)
            return []
        ids = [handle.id for handle in handles]
        self._journal.write("ack", labels=labels, ids=ids, replaced=[handle.replaced_id for handle in handles])
        self._known += ids
        if self._random.random() < PATIENT:
            await self._watch(self._random.choice(ids))
        return ids

    async def _watch(self, id: int) -> None:
        try:
            record = await self._scheduler.wait(id, timeout=PATIENCE)
        except TimeoutError:
            return
        self._journal.write("seen", id=id, ending=record.ending)

    async def _submit_family(self) -> None:
        await self._ask(
            self._prepared(self._family(type=self._random.choice(["parent", "narrow", "threaded", "bare"])))
        )

    async def _submit_clan(self) -> None:
        plan = self._family(type="clan")
        plan.name = f"name {self._random.randrange(NAMES)}"
        await self._ask(self._prepared(plan))

    async def _submit_chain(self) -> None:
        """Submit tasks that depend on some of those before them."""
        chance = self._random
        submissions: list[Submission] = []
        edges: list[tuple[str, str]] = []
        for _ in range(chance.randint(2, 5)):
            options: dict[str, Any] = {"ref": self._name()}
            if before := chance.sample(submissions, min(len(submissions), chance.randint(0, 2))):
                options["depends_on"] = [one.options["ref"] for one in before]
                options["on_dependency_failure"] = chance.choice(["cancel", "cancel", "fail", "ignore"])
                edges += [(options["ref"], one.options["ref"]) for one in before]
            submissions.append(self._prepared(self._family(1), label=options["ref"], **options))
        await self._ask(*submissions, edges=edges)

    async def _submit_dependent(self) -> None:
        """Submit a task that depends on tasks of other processes, whatever has become of them."""
        if not self._known:
            return
        on_ids = self._random.sample(self._known[-8:], min(len(self._known), self._random.randint(1, 3)))
        submission = self._prepared(
            self._family(1), depends_on=on_ids, on_dependency_failure=self._random.choice(["cancel", "ignore"])
        )
        await self._ask(submission, on_ids=on_ids)

    async def _submit_series(self) -> None:
        every = self._random.randint(20, 90) / 1000
        max_runs = self._random.randint(2, 8)
        plan = self._leaf() if self._random.random() < 0.5 else self._family(1, "parent")
        submission = self._prepared(plan, every=every, max_runs=max_runs)
        self._series += await self._ask(submission, every=round(every * 1000), max_runs=max_runs)

    async def submit_poison(self) -> None:
        """Submit a family that kills its process three times: in its handler, in ``finalize`` or in a child."""
        children = [self._leaf() for _ in range(3)]
        plan = Plan(self._random.choice(["parent", "threaded", "bare"]), takes=0.02, children=children)
        plan.fail_fast = self._random.random() < 0.5
        match self._random.choice(["handler", "finalize", "child"]):
            case "handler":
                plan.how = "poison"
            case "finalize" if plan.type != "bare":
                plan.finish = "poison"
            case _:
                children[1].how = "poison"
        await self._ask(self._prepared(plan))

    # Stopping

    async def _cancel_some(self) -> None:
        chosen = self._known[-8:]
        if self._random.random() < 0.7:
            status = self._random.choice([Status.RUNNING, Status.WAITING, Status.WAITING])
            chosen = [record.id for record in await self._scheduler.tasks(status=status, limit=8)] or chosen
        if not chosen:
            return
        await self._cancel(self._random.choice(chosen))

    async def _end_series(self) -> None:
        if not self._series:
            return
        id = self._random.choice(self._series)
        self._journal.write("ending series", id=id)
        try:
            await self._scheduler.cancel_recurring(id)
        except InvalidState:
            return
        self._journal.write("series ended", id=id)

    async def _pause_series(self) -> None:
        if not self._series:
            return
        id = self._random.choice(self._series)
        try:
            await self._scheduler.pause_recurring(id)
            await asyncio.sleep(0.03)
            await self._scheduler.resume_recurring(id)
        except InvalidState:
            self._journal.write("no such series", id=id)


def scheduler_for(order: Order) -> Scheduler:
    return Scheduler(
        order.file,
        domains=[family_work.domain],
        max_concurrency=6,
        retention=None,
        cancel_timeout=20,
        durability="full",
    )


async def work(order: Order, journal: Journal) -> None:
    async with scheduler_for(order) as scheduler:
        is_open(journal)
        elder = Elder(scheduler, order, journal)
        async with scheduler.running():
            told = asyncio.ensure_future(Parent().heard())
            working = asyncio.ensure_future(all_work(scheduler, elder, order))
            await asyncio.wait([told, working], return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                working.cancel()
                journal.write("leaving")
                await scheduler.stop(grace=0)
            else:
                await working


async def all_work(scheduler: Scheduler, elder: Elder, order: Order) -> None:
    async def act() -> None:
        for _ in range(order.actions):
            if await scheduler.count() >= ENOUGH_WAITING:
                return
            await elder.act()

    if order.poison:
        await elder.submit_poison()
    async with asyncio.TaskGroup() as group:
        for _ in range(VOICES):
            group.create_task(act())
    await everything_ended(scheduler)


async def neighbour(order: Order, journal: Journal) -> None:
    async with scheduler_for(order) as scheduler:
        is_open(journal)
        elder = Elder(scheduler, order, journal)
        told = asyncio.ensure_future(Parent().heard())
        while not told.done():
            await elder.act()


def is_open(journal: Journal) -> None:
    journal.write("open")
    say("open")


async def drain(order: Order, journal: Journal) -> None:
    async with scheduler_for(order) as scheduler:
        is_open(journal)
        async with scheduler.running():
            await everything_ended(scheduler)
        await scheduler.run_until_idle(timeout=60)


async def everything_ended(scheduler: Scheduler) -> None:
    """Wait until all tasks have ended; resume series that were paused when their process died."""
    for schedule in (await scheduler.snapshot()).schedules:
        if schedule.paused and schedule.task_id is not None:
            with contextlib.suppress(InvalidState):  # it was the last occurrence
                await scheduler.resume_recurring(schedule.task_id)
    await all_ended(scheduler)


async def tour(order: Order, journal: Journal) -> None:
    reached = points.count(points.FAMILY_POINTS)
    async with scheduler_for(order) as scheduler:
        is_open(journal)
        elder = Elder(scheduler, order, journal)
        async with scheduler.running():
            for _ in range(order.actions):
                await elder.act_in_every_way()
            await everything_ended(scheduler)
    journal.write("reached", points=reached)


def main() -> None:
    order = received()
    role = {"work": work, "neighbour": neighbour, "drain": drain, "tour": tour}[order.role]
    os.environ.update({JOURNAL_PATH: order.journal, JOURNAL_WHO: order.who})
    asyncio.run(role(order, family_work.journal()))


if __name__ == "__main__":
    main()
