"""Random programs of families and dependencies: their actions, the observations, and the violations."""

from __future__ import annotations

import asyncio
import itertools
import sqlite3
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from taskmill import Context, Domain, GiveUp, Retry, RetryLater, Scheduler, SubmissionError
from taskmill.errors import InvalidState
from taskmill.events import Event, TaskPreempted
from taskmill.model.records import HistoryRecord
from taskmill.model.submission import Submission
from taskmill.testing import ManualClock
from tests.both_engines import copied_as_killed

DEEPEST = 4
WORDS = ["ok", "ok", "ok", "ok", "fail", "later", "give up", "hang", "slow"]
POLICIES = ["cancel", "cancel", "fail", "ignore"]


@dataclass
class Node:
    """The actions of one task of the program."""

    script: list[str]
    finalize: list[str]
    children: list[int]
    options: dict[str, Any]
    kind: str


@dataclass
class World:
    """One program: its actions and the observations."""

    seed: int
    folder: Path | None
    random: Random = field(init=False)
    clock: ManualClock = field(default_factory=ManualClock)
    nodes: list[Node] = field(default_factory=list[Node])
    ids: dict[int, list[int]] = field(default_factory=dict[int, list[int]])
    told: list[str] = field(default_factory=list[str])
    acknowledged: set[int] = field(default_factory=set[int])
    needs: dict[int, set[int]] = field(default_factory=dict[int, set[int]])
    replacements: dict[int, int] = field(default_factory=dict[int, int])
    wrong: list[str] = field(default_factory=list[str])
    hooked: dict[int, int] = field(default_factory=dict[int, int])
    """When the hook of a task began last, as a number in the order of all observations."""
    needs_hook: set[int] = field(default_factory=set[int])
    """Tasks that were interrupted while they ran."""
    requeued: set[int] = field(default_factory=set[int])
    """Tasks that run again, and wait in between."""
    waited: set[int] = field(default_factory=set[int])
    """Tasks whose handler has returned while children are left."""
    live: dict[int, int] = field(default_factory=dict[int, int])
    life: int = 0
    """Number of crashes; handlers of an earlier life are ignored."""
    stopping: bool = False

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        self.moments = itertools.count()
        self.release = asyncio.Event()
        self.domain = Domain("f", retry=Retry.constant(1, delay=0))
        self.types = {
            kind: _register(self, kind, fail_fast=fail_fast, max_children=most, on_parent_expiry=expiry)
            for kind, fail_fast, most, expiry in (
                ("fast", True, None, "complete"),
                ("slow", False, None, "cancel"),
                ("few", False, 2, "complete"),
            )
        }

    def tell(self, what: str) -> None:
        self.told.append(f"{self.clock.monotonic():9.3f} {what}")

    def is_wrong(self, what: str) -> None:
        self.tell(f"WRONG {what}")
        self.wrong.append(what)

    # Making programs

    def make_node(self, depth: int) -> int:
        random = self.random
        options: dict[str, Any] = {}
        if random.random() < 0.15:
            options["key"] = random.choice("abc")
            options["on_duplicate"] = random.choice(["supersede", "supersede", "skip", "requeue"])
        if random.random() < 0.1:
            options["ttl"] = random.choice([1, 3, 30])
        if random.random() < 0.15:
            options["run_after"] = random.choice([1, 5])
        if random.random() < 0.3:
            options["priority"] = random.randrange(256)
        width = random.choice([0, 0, 1, 2, 3]) if depth < DEEPEST else 0
        node = Node(
            script=[random.choice(WORDS) for _ in range(random.randint(1, 3))],
            finalize=[random.choice(["ok", "ok", "fail", "give up", "spawn", "hang"]) for _ in range(2)],
            children=[],
            options=options,
            kind=random.choice(["fast", "fast", "slow", "few"]),
        )
        self.nodes.append(node)
        number = len(self.nodes) - 1
        node.children = [self.make_node(depth + 1) for _ in range(width)]
        return number

    def prepare(self, numbers: list[int]) -> list[Submission]:
        """Return submissions of these nodes, with dependencies among them and on known tasks."""
        random, made = self.random, list[Submission]()
        known = [number for number, ids in self.ids.items() if ids]
        for place, number in enumerate(numbers):
            node = self.nodes[number]
            wanted: list[int | str] = []
            if random.random() < 0.35 and len(numbers) > 1:
                other = random.randrange(len(numbers))
                # Sometimes a cycle, which must be refused.
                if other != place and (other < place or random.random() < 0.1):
                    wanted.append(f"n{numbers[other]}")
            if random.random() < 0.2 and known:
                wanted.append(self.ids[random.choice(known)][-1])
            options = dict(node.options, ref=f"n{number}")
            if wanted:
                options |= {"depends_on": wanted, "on_dependency_failure": random.choice(POLICIES)}
            made.append(self.types[node.kind].options(**options).prepare(number))
        return made

    def stored(self, numbers: list[int], handles: list[Any], submissions: list[Submission]) -> None:
        for number, handle in zip(numbers, handles, strict=True):
            self.ids.setdefault(number, []).append(handle.id)
            self.acknowledged.add(handle.id)
            if handle.kind == "requeued":
                self.requeued.add(handle.id)
            if handle.replaced_id is not None:
                self.replacements[handle.replaced_id] = handle.id
        refs = {f"n{number}": handle.id for number, handle in zip(numbers, handles, strict=True)}
        for handle, submission in zip(handles, submissions, strict=True):
            if handle.kind in ("inserted", "superseded"):
                wanted = submission.options.get("depends_on", ())
                self.needs[handle.id] = {refs[one] if isinstance(one, str) else one for one in wanted}
        self.tell(
            f"stored {[(number, handle.id, handle.kind) for number, handle in zip(numbers, handles, strict=True)]}"
        )

    # The process

    async def open(self, path: str) -> None:
        self.path = path
        self.stopping = False
        self.scheduler = Scheduler(
            path,
            domains=[self.domain],
            clock=self.clock,
            max_concurrency=self.random.choice([1, 2, 8]),
            retention=None,
            durability="process",
            cancel_timeout=20,
        )
        await self.scheduler.open()
        self.noticing = asyncio.create_task(self.notice_preemption(self.scheduler.events(TaskPreempted)))
        self.run = asyncio.create_task(self.scheduler.run())
        await self.clock.advance(0)

    async def notice_preemption(self, events: AsyncIterator[Event]) -> None:
        """Note preempted tasks: they wait again, and need no hook unless they are stopped later while they run."""
        async for event in events:
            assert isinstance(event, TaskPreempted)
            self.needs_hook.discard(event.task_id)

    async def close(self) -> None:
        self.stopping = True
        stop = asyncio.create_task(self.scheduler.stop(0))
        while not stop.done():
            await self.clock.advance(0.5)
        await stop
        await self.run
        await self.scheduler.close()
        await self.noticing

    async def restart(self, *, crash: bool) -> None:
        assert self.folder is not None
        path = self.path
        if crash:
            # The file as it is now equals that of a killed process.
            path = str(self.folder / f"{self.life}.db")
            if not copied_as_killed(self.path, path):
                with sqlite3.connect(self.path) as source, sqlite3.connect(path) as copy:
                    source.backup(copy)
                source.close()
                copy.close()
            self.life += 1
            self.waited.clear()  # the return of a handler may not have been committed
        await self.close()
        self.live.clear()
        await self.open(path)

    # Running the program

    async def play(self) -> None:
        random = self.random
        await self.open(":memory:" if self.folder is None else str(self.folder / "first.db"))
        for _ in range(random.randint(4, 14)):
            await self.step(random.random())
        self.tell("handlers may finish")
        self.release.set()
        for _ in range(60):
            await self.clock.advance(20)
            if not await self.scheduler.tasks():
                break
        await self.judge()
        await self.close()

    async def step(self, chance: float) -> None:
        random = self.random
        active = await self.scheduler.tasks()
        if chance < 0.4 or not active:
            numbers = [self.make_node(1) for _ in range(random.randint(1, 3))]
            submissions = self.prepare(numbers)
            try:
                handles = await self.scheduler.submit_many(submissions)
            except SubmissionError as refused:
                self.tell(f"refused {numbers}: {refused}")
            else:
                self.stored(numbers, handles, submissions)
        elif chance < 0.55:
            chosen = sorted(random.sample([task.id for task in active], min(len(active), random.choice([1, 1, 2]))))
            self.tell(f"cancel {chosen}")
            for id in chosen:
                await self.scheduler.cancel(id)
        elif chance < 0.6:
            kind = random.choice(list(self.types))
            self.tell(f"cancelled all {kind}: {await self.scheduler.cancel_where(type=f'f::{kind}')}")
        elif chance < 0.72 and self.folder is not None:
            crash = random.random() < 0.6
            self.tell("crash" if crash else "restart")
            await self.restart(crash=crash)
        else:
            seconds = random.choice([0, 0, 0.02, 1, 2, 4])
            self.tell(f"{seconds} s pass")
            await self.clock.advance(seconds)

    # Checking

    async def judge(self) -> None:
        for task in await self.scheduler.tasks():
            self.is_wrong(f"task {task.id} is left {task.status}, parent {task.parent_id}")
        history = {record.id: record for record in await self.scheduler.history()}
        if lost := self.acknowledged - history.keys():
            self.is_wrong(f"no history of {sorted(lost)}")
        with_hooks = {"cancelled", "superseded"}
        for record in history.values():
            parent = history.get(record.parent_id or 0)
            if parent is not None and parent.ending != "expired" and record.ended_at > parent.ended_at:
                self.is_wrong(f"child {record.id} ended after its parent {parent.id}")
            if parent is not None and self.hooked.get(record.id, -1) > self.hooked.get(parent.id, 1 << 60):
                self.is_wrong(f"the hook of {record.id} ran after that of its parent {parent.id}")
            if (
                record.id in (self.needs_hook | self.waited) - self.requeued
                and record.ending in with_hooks
                and record.id not in self.hooked
            ):
                self.is_wrong(f"{record.id} was {record.ending} while at work, and its hook did not run")
            for on_id in self.needs.get(record.id, ()):
                on = history.get(on_id)
                while on is not None and record.started_at is not None:
                    if record.started_at < on.ended_at:
                        self.is_wrong(f"{record.id} started before {on.id}, which it depends on, had ended")
                    # A dependent of a task that is replaced waits for both.
                    successor = self.replacements.get(on.id, 0)
                    on = history.get(successor) if successor > record.id else None
        for record in history.values():
            self.tell(f"{record.id} {record.ending}, parent {record.parent_id}: {record.error}")


def _register(world: World, kind: str, **options: Any) -> Any:
    """Return a task type whose handlers do what their node says, and check their surroundings."""

    @world.domain.task(name=kind, **options)
    async def main(ctx: Context, number: int) -> str:
        life, id = world.life, ctx.task.id
        node = world.nodes[number]
        word = node.script[(ctx.attempt - 1) % len(node.script)]
        if world.live.get(id) is not None:
            world.is_wrong(f"two attempts of {id} at once")
        world.live[id] = ctx.attempt
        world.waited.discard(id)
        has_children = False
        world.tell(f"{id} ({kind} node {number}) attempt {ctx.attempt}: {word}")
        try:
            await look_for_open_needs(id)
            if node.children and ctx.attempt <= 2:
                has_children = await spawn(ctx, node.children)
            await act(word)
        except asyncio.CancelledError:
            if life == world.life and not world.stopping:
                world.needs_hook.add(id)
            raise
        finally:
            if life == world.life:
                world.live.pop(id, None)
        if has_children and life == world.life:
            world.waited.add(id)
        return f"handled {number}"

    @main.finalize
    async def finalize(ctx: Context, number: int) -> str | None:
        life, id = world.life, ctx.task.id
        node = world.nodes[number]
        word = node.finalize[ctx.attempt % len(node.finalize)]
        world.tell(f"{id} finalizes, attempt {ctx.attempt}: {word}")
        await no_child_is_left(id, "finalize")
        try:
            if word == "spawn":
                if ctx.attempt < 6:
                    await spawn(ctx, [world.make_node(DEEPEST)])
                return None
            await act(word)
        except asyncio.CancelledError:
            if life == world.life and not world.stopping:
                world.needs_hook.add(id)
            raise
        return f"finalized {number}"

    @main.on_cancel
    async def on_cancel(ctx: Context, number: int) -> None:
        life, id = world.life, ctx.task.id
        if life == world.life:
            world.hooked[id] = next(world.moments)
        world.tell(f"hook of {id}")
        await no_child_is_left(id, "on_cancel")
        await world.clock.sleep(0.01)

    async def act(word: str) -> None:
        if word == "slow" and not world.release.is_set():
            await world.clock.sleep(1.5)
        if word == "hang":
            await world.release.wait()
        if word == "fail":
            raise ValueError(word)
        if word == "later":
            raise RetryLater(word, after=3)
        if word == "give up":
            raise GiveUp(word)

    async def spawn(ctx: Context, numbers: list[int]) -> bool:
        life = world.life
        submissions = world.prepare(numbers)
        try:
            handles = await ctx.spawn_many(submissions)
        except (SubmissionError, InvalidState) as refused:
            world.tell(f"{ctx.task.id} was refused children {numbers}: {refused}")
            return False
        if life == world.life:
            world.tell(f"{ctx.task.id} spawned")
            world.stored(numbers, list(handles), submissions)
        return any(handle.kind in ("inserted", "superseded") for handle in handles)

    async def look_for_open_needs(id: int) -> None:
        life = world.life
        graph = await world.scheduler.graph(id)
        for edge in graph.dependencies:
            if edge.task_id == id and life == world.life:
                on = graph.tasks.get(edge.on_id)
                if edge.open or not (on is None or isinstance(on, HistoryRecord)):
                    world.is_wrong(f"{id} started before {edge.on_id}, which it depends on, had ended")

    async def no_child_is_left(id: int, part: str) -> None:
        life = world.life
        left = [(task.id, str(task.status)) for task in await world.scheduler.tasks(parent=id)]
        if left and life == world.life and not world.stopping:
            world.is_wrong(f"{part} of {id} runs while it has children: {left}")

    return main
