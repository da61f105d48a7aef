"""Random walks through the states of tasks: every verb of the public interface, in random order."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import msgspec

from taskmill import Context, Domain, GiveUp, InvalidState, Retry, RetryLater, Scheduler, SubmissionError
from taskmill.testing import ManualClock
from tests.both_engines import copied_as_killed
from tests.runtime.lifecycle.journal import Change, Journal

WORDS = ["ok", "ok", "ok", "fail", "later", "give up", "hang", "hang", "stubborn"]
KEYS = "ab"
GROUPS = ["", "other"]
DEEPEST = 2


class Node(NamedTuple):
    """A task: one action of its script per attempt, and its children; a child that is None is random."""

    type: str
    script: list[str]
    children: list[Node | None] = []  # noqa: RUF012 - never changed


class Walk:
    """One program on one store; after a kill it continues on a copy of the store."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.chance = Random(seed)
        self.folder = folder
        self.clock = ManualClock()
        self.path = folder / "0.db"
        self.slots: int | None = None
        self.lives = 0
        self.changes: list[Change] = []
        self.done: list[str] = []
        self.series: list[int] = []
        self.at_work: dict[int, asyncio.Task[Any]] = {}
        self.domain = Domain("walk", retry=Retry.constant(2, delay=0))
        self.types = {
            "plain": _register(self, "plain", finalizes=False, has_hook=False),
            "hooked": _register(self, "hooked", finalizes=False, has_hook=True, on_parent_expiry="cancel"),
            "parent": _register(self, "parent", finalizes=True, has_hook=True),
            "patient": _register(self, "patient", finalizes=True, has_hook=True, fail_fast=False, max_children=1),
            "bare": _register(self, "bare", finalizes=False, has_hook=False, fail_fast=False),
        }

        @self.domain.task
        def threaded(script: list[str], children: list[Any], depth: int) -> None: ...

        self.types["threaded"] = threaded

    async def play(self, steps: int) -> list[Change]:
        """Walk, and return every change of a state."""
        await self.open()
        try:
            for _ in range(steps):
                verbs = self._verbs()
                verb = self.chance.choices(list(verbs), list(verbs.values()))[0]
                self.done.append(verb.__name__)
                try:
                    await verb()
                except (InvalidState, SubmissionError) as refused:
                    self.done[-1] += f" refused: {refused}"
                await self.clock.advance(self.chance.choice([0, 0, 0, 0.5, 1, 3]))
                self.changes += self.journal.changes()
        finally:
            await self.close()
        return self.changes

    def _verbs(self) -> dict[Callable[[], Awaitable[object]], int]:
        return {
            self.submit: 12,
            self.submit_together: 2,
            self.submit_urgent: 3,
            self.repeat: 2,
            self.cancel: 5,
            self.pause: 2,
            self.resume: 2,
            self.pause_series: 2,
            self.resume_series: 2,
            self.revive: 2,
            self.cancel_outside: 1,
            self.restart: 1,
            self.kill: 1,
        }

    # The process

    async def open(self) -> None:
        self.scheduler = Scheduler(
            self.path,
            domains=[self.domain],
            clock=self.clock,
            max_concurrency=self.slots or self.chance.choice([1, 2, 4]),
            retention=None,
            durability="process",
            cancel_timeout=5,
        )
        await self.scheduler.open()
        self.journal = Journal(self.path)
        self.run = asyncio.create_task(self.scheduler.run())
        await self.clock.advance(0)

    async def close(self) -> None:
        stop = asyncio.create_task(self.scheduler.stop(0))
        while not stop.done():
            await self.clock.advance(0.5)
        await stop
        await self.run
        await self.scheduler.close()
        self.changes += self.journal.changes()
        self.journal.remove()

    async def restart(self) -> None:
        await self.close()
        await self.open()

    async def kill(self) -> None:
        """Continue with the store as it is now, which is what a killed process would leave."""
        self.lives += 1
        left, self.path = self.path, self.folder / f"{self.lives}.db"
        if not copied_as_killed(left, self.path):
            source, copy = sqlite3.connect(left), sqlite3.connect(self.path)
            source.backup(copy)
            source.close()
            copy.close()
        await self.close()
        await self.open()

    # Actions

    def submission(self, depth: int = 0, **more: Any) -> Any:
        chance, options = self.chance, dict[str, Any](more)
        if chance.random() < 0.35:
            options |= {"key": chance.choice(KEYS), "on_duplicate": chance.choice(["supersede", "requeue", "skip"])}
        if chance.random() < 0.3:
            options["ttl"] = chance.choice([1, 3, 10])
        if chance.random() < 0.2:
            options["run_after"] = chance.choice([1, 4])
        if chance.random() < 0.3:
            options["group"] = "other"
        script = [chance.choice(WORDS) for _ in range(3)]
        children = [None] * (chance.choice([0, 0, 1, 2, 3]) if depth < DEEPEST else 0)
        return chance.choice(list(self.types.values())).options(**options).prepare(script, children, depth)

    async def add(self, node: Node, **options: Any) -> int:
        """Submit a task that follows its node, and return its id."""
        children = msgspec.json.decode(msgspec.json.encode(node.children))
        task = self.types[node.type].options(**options).prepare(node.script, children, 0)
        handle = await self.scheduler.submit(task)
        await self.clock.advance(0)
        return handle.id

    async def submit(self) -> None:
        options: dict[str, Any] = {}
        active = [task.id for task in await self.scheduler.tasks()]
        if active and self.chance.random() < 0.3:
            options["depends_on"] = self.chance.sample(active, 1)
            options["on_dependency_failure"] = self.chance.choice(["cancel", "fail", "ignore"])
        await self.scheduler.submit(self.submission(**options))

    async def submit_together(self) -> None:
        """Submit, in one batch, tasks that may replace each other."""
        given = {"key": self.chance.choice(KEYS), "on_duplicate": "supersede"}
        plain = self.types["plain"]
        both = (plain.options(**given, run_after=self.chance.choice([0, 2])), plain.options(**given))
        await asyncio.gather(*(self.scheduler.submit(task.prepare(["ok"], [], 0)) for task in both))

    async def submit_urgent(self) -> None:
        await self.add(Node("plain", [self.chance.choice(WORDS)]), priority=0)

    async def repeat(self) -> None:
        options: dict[str, Any] = {"every": 2, "key": self.chance.choice(KEYS)} | self.chance.choice(
            [{}, {}, {"on_duplicate": "supersede"}, {"ttl": 1}]
        )
        script = [self.chance.choice(WORDS) for _ in range(3)]
        children: list[Node | None] = [None] * self.chance.choice([0, 1])
        self.series.append(await self.add(Node(self.chance.choice(list(self.types)), script, children), **options))

    async def cancel(self) -> None:
        if active := await self.scheduler.tasks():
            await self.scheduler.cancel(self.chance.choice(active).id)

    async def pause(self) -> None:
        await self.scheduler.group(self.chance.choice(GROUPS)).pause(duration=self.chance.choice([None, 2]))

    async def resume(self) -> None:
        await self.scheduler.group(self.chance.choice(GROUPS)).resume()

    async def pause_series(self) -> None:
        if self.series:
            await self.scheduler.pause_recurring(self.chance.choice(self.series[-2:]))

    async def resume_series(self) -> None:
        if self.series:
            await self.scheduler.resume_recurring(self.chance.choice(self.series[-2:]))

    async def revive(self) -> None:
        if dead := await self.scheduler.history(status="dead_letter"):
            await self.scheduler.retry_dead(self.chance.choice(dead).id)

    async def cancel_outside(self) -> None:
        """Cancel a handler from outside, as a program that cancels its own asyncio tasks."""
        if self.at_work:
            self.chance.choice(list(self.at_work.values())).cancel()


def _register(walk: Walk, name: str, *, finalizes: bool, has_hook: bool, **options: Any) -> Any:
    """Return a task type whose handler follows a script, one action per attempt."""

    @walk.domain.task(name=name, **options)
    async def handler(ctx: Context, script: list[str], children: list[Any], depth: int) -> None:
        current = asyncio.current_task()
        assert current is not None
        walk.at_work[ctx.task.id] = current
        try:
            if children and ctx.attempt <= 2:
                await spawn(ctx, children, depth)
            await act(script[(ctx.attempt - 1) % len(script)])
        finally:
            walk.at_work.pop(ctx.task.id, None)

    if finalizes:

        @handler.finalize
        async def finalize(ctx: Context, script: list[str], children: list[Any], depth: int) -> None:
            if children and ctx.attempt <= 3:
                await spawn(ctx, [None], DEEPEST)
            await act(script[ctx.attempt % len(script)])

    if has_hook:

        @handler.on_cancel
        async def on_cancel(ctx: Context, script: list[str], children: list[Any], depth: int) -> None:
            await walk.clock.sleep(0.5)

    async def act(word: str) -> None:
        if word in ("hang", "stubborn"):
            try:
                await walk.clock.sleep(6)
            except asyncio.CancelledError:
                if word == "stubborn":
                    await walk.clock.sleep(1)
                raise
        if word == "fail late":
            await walk.clock.sleep(1)
        if word in ("fail", "fail late"):
            raise ValueError(word)
        if word == "later":
            raise RetryLater(word, after=3)
        if word == "give up":
            raise GiveUp(word)

    async def spawn(ctx: Context, children: list[Any], depth: int) -> None:
        try:
            await ctx.spawn_many([child(given, depth + 1) for given in children])
        except (SubmissionError, InvalidState) as refused:
            walk.done.append(f"task {ctx.task.id} spawned nothing: {refused}")

    def child(given: list[Any] | None, depth: int) -> Any:
        if given is None:
            return walk.submission(depth)
        node = Node(*given)
        return walk.types[node.type].prepare(node.script, node.children, depth)

    return handler
