"""Nodes that work together: idle means that no node has work, and one of them preempts a task for an urgent one."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from contextlib import AsyncExitStack

import pytest

from taskmill import Context, Domain, Priority, Scheduler, Submission
from taskmill.policy.preemption import PATIENCE_MS
from taskmill.store.postgres import heartbeat

LONG = 30.0


class _Node:
    """A scheduler with its own domain, and the tasks that it has run."""

    def __init__(self, address: str, *types: str, slots: int = 1) -> None:
        self.begun: list[tuple[str, int]] = []
        self.ended: list[tuple[str, int]] = []
        self.go_on = asyncio.Event()
        domain = Domain("d")
        for name in types:
            self._register(domain, name)
        self.scheduler = Scheduler(address, domains=[domain], max_concurrency=slots)

    def _register(self, domain: Domain, name: str) -> None:
        async def work(ctx: Context) -> None:
            self.begun.append((name, ctx.task.id))
            if not name.startswith("short"):
                await self._wait(reluctant=name == "reluctant")
            self.ended.append((name, ctx.task.id))

        domain.task(name=name)(work)

    async def _wait(self, *, reluctant: bool) -> None:
        try:
            await self.go_on.wait()
        except asyncio.CancelledError:
            # Long enough for others to see that the task still runs.
            await asyncio.sleep(0.5 if reluctant else 0)
            raise

    async def has_told_its_slots(self) -> None:
        """Wait until the other nodes can know its slots."""
        async with asyncio.timeout(LONG):
            while not any(node.is_here and node.slots for node in (await self.scheduler.snapshot()).nodes):
                await asyncio.sleep(0.01)

    async def has_begun(self, count: int) -> None:
        async with asyncio.timeout(LONG):
            while len(self.begun) < count:
                await asyncio.sleep(0.01)


@pytest.fixture
async def stack() -> AsyncExitStack:
    return AsyncExitStack()


async def _open(stack: AsyncExitStack, *nodes: _Node, running: bool = True) -> None:
    for node in nodes:
        await stack.enter_async_context(node.scheduler)
        if running:
            await stack.enter_async_context(node.scheduler.running())


# Idle


async def test_a_node_that_waits_for_another_is_not_idle(postgres_store: str, stack: AsyncExitStack) -> None:
    busy, idle = _Node(postgres_store, "long"), _Node(postgres_store)
    async with stack:
        await _open(stack, busy)
        await _open(stack, idle, running=False)
        await idle.scheduler.submit(Submission("d::long", {}))
        await busy.has_begun(1)
        with pytest.raises(TimeoutError):
            await idle.scheduler.run_until_idle(timeout=0.5)
        waiting = asyncio.create_task(idle.scheduler.run_until_idle(timeout=LONG))
        await asyncio.sleep(0.3)
        assert not waiting.done()
        busy.go_on.set()
        await waiting
        assert await idle.scheduler.count() == 0


async def test_tasks_that_only_another_node_can_run_are_awaited(postgres_store: str, stack: AsyncExitStack) -> None:
    able, unable = _Node(postgres_store, "short"), _Node(postgres_store, "other")
    async with stack:
        await _open(stack, able)
        await _open(stack, unable, running=False)
        await unable.scheduler.submit_many([Submission("d::short", {}) for _ in range(50)])
        await unable.scheduler.run_until_idle(timeout=LONG)
        assert await unable.scheduler.count() == 0
    assert len(able.ended) == 50


async def test_tasks_that_no_node_can_or_may_run_now_do_not_prevent_idle(
    postgres_store: str, stack: AsyncExitStack
) -> None:
    able, unable = _Node(postgres_store, "short"), _Node(postgres_store, "other", "gone")
    async with stack:
        await _open(stack, able)
        await _open(stack, unable, running=False)
        await able.scheduler.group("held").pause()
        await able.scheduler.submit_many(
            [Submission("d::short", {}, group="held"), Submission("d::short", {}, run_after=3600)]
        )
        async with Scheduler(postgres_store) as third:
            await third.submit(Submission("d::gone", {}, group="held"))
            await third.run_until_idle(timeout=LONG)
        await unable.scheduler.run_until_idle(timeout=LONG)
        assert await able.scheduler.count() == 3


async def test_a_chain_over_two_nodes_is_idle_at_its_end_and_not_before(
    postgres_store: str, stack: AsyncExitStack
) -> None:
    one, two = _Node(postgres_store, "short one"), _Node(postgres_store, "short two")
    watching = _Node(postgres_store)
    async with stack:
        await _open(stack, one, two)
        await _open(stack, watching, running=False)
        for _ in range(5):
            links = [
                Submission(
                    f"d::short {'one' if n % 2 else 'two'}", {}, ref=str(n), depends_on=[str(n - 1)] if n else []
                )
                for n in range(20)
            ]
            await watching.scheduler.submit_many(links)
            await watching.scheduler.run_until_idle(timeout=LONG)
            assert await watching.scheduler.count() == 0


async def test_both_are_idle_when_all_is_done_and_neither_before(postgres_store: str, stack: AsyncExitStack) -> None:
    nodes = [_Node(postgres_store, "short", slots=3) for _ in range(3)]
    async with stack:
        await _open(stack, *nodes, running=False)
        await nodes[0].scheduler.submit_many([Submission("d::short", {}) for _ in range(300)])

        async def run(node: _Node) -> int:
            await node.scheduler.run_until_idle(timeout=LONG)
            return await node.scheduler.count()

        left = await asyncio.gather(*map(run, nodes))
    assert left == [0, 0, 0]
    runs = Counter(id for node in nodes for _, id in node.ended)
    assert len(runs) == 300
    assert set(runs.values()) == {1}


# Preemption


async def test_one_node_preempts_for_one_urgent_task(postgres_store: str, stack: AsyncExitStack) -> None:
    nodes = [_Node(postgres_store, "reluctant", "short urgent") for _ in range(3)]
    async with stack:
        await _open(stack, *nodes)
        for count in range(1, 4):
            await nodes[0].scheduler.submit(Submission("d::reluctant", {}, priority=Priority.LOW))
            async with asyncio.timeout(LONG):
                while sum(len(node.begun) for node in nodes) < count:
                    await asyncio.sleep(0.01)
        urgent = await nodes[0].scheduler.submit(Submission("d::short urgent", {}, priority=Priority.CRITICAL))
        await urgent.result(timeout=LONG)
        await asyncio.sleep(0.5)
        for node in nodes:
            node.go_on.set()
        await nodes[0].scheduler.stop()
        await nodes[0].scheduler.run_until_idle(timeout=LONG)
    longs = [entry for node in nodes for entry in node.begun if entry[0] == "reluctant"]
    assert len(longs) == 4, "one of the three was interrupted, and began again"
    assert sum(len(node.ended) for node in nodes) == 4


async def test_the_least_urgent_is_preempted_wherever_it_runs(postgres_store: str, stack: AsyncExitStack) -> None:
    nodes = [_Node(postgres_store, "long", "short urgent") for _ in range(2)]

    def begun(id: int) -> int:
        return sum(entry == ("long", id) for node in nodes for entry in node.begun)

    async with stack:
        await _open(stack, *nodes)
        ids: list[int] = []
        for priority in (Priority.HIGH, Priority.LOW):
            ids.append((await nodes[0].scheduler.submit(Submission("d::long", {}, priority=priority))).id)
            async with asyncio.timeout(LONG):
                while not begun(ids[-1]):
                    await asyncio.sleep(0.01)
        # The ids are consecutive: a rule by ids would choose the nodes alternately.
        for count in range(2, 6):
            submitter = nodes[count % 2].scheduler
            urgent = await submitter.submit(Submission("d::short urgent", {}, priority=Priority.CRITICAL))
            await urgent.result(timeout=LONG)
            async with asyncio.timeout(LONG):
                while begun(ids[1]) < count:
                    await asyncio.sleep(0.01)
        assert [begun(id) for id in ids] == [1, 5]
        for node in nodes:
            node.go_on.set()


async def test_a_task_is_preempted_only_where_the_urgent_one_can_run(
    postgres_store: str, stack: AsyncExitStack
) -> None:
    able, other = _Node(postgres_store, "long", "short urgent"), _Node(postgres_store, "other")
    async with stack:
        await _open(stack, able, other)
        await able.scheduler.submit(Submission("d::long", {}, priority=Priority.HIGH))
        await other.scheduler.submit(Submission("d::other", {}, priority=Priority.IDLE))
        await able.has_begun(1)
        await other.has_begun(1)
        urgent = await other.scheduler.submit(Submission("d::short urgent", {}, priority=Priority.CRITICAL))
        await urgent.result(timeout=LONG)
        await able.has_begun(3)
        for node in (able, other):
            node.go_on.set()
    assert [name for name, _ in able.begun] == ["long", "short urgent", "long"]
    assert len(other.begun) == 1


async def test_a_node_preempts_at_once_though_it_gets_no_other_notification(
    postgres_store: str, stack: AsyncExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No node polls by itself before the test is over.
    monkeypatch.setattr(heartbeat, "BEAT", 15.0)
    nodes = [_Node(postgres_store, "long", "short urgent") for _ in range(2)]
    took: list[float] = []
    async with stack:
        await _open(stack, *nodes)
        for count in range(1, 3):
            await nodes[0].scheduler.submit(Submission("d::long", {}, priority=Priority.LOW))
            async with asyncio.timeout(LONG):
                while sum(len(node.begun) for node in nodes) < count:
                    await asyncio.sleep(0.01)
        # Each of two consecutive tasks preempts one on another node.
        for _ in range(2):
            since = time.monotonic()
            urgent = await nodes[0].scheduler.submit(Submission("d::short urgent", {}, priority=Priority.CRITICAL))
            async with asyncio.timeout(LONG):
                while not any(("short urgent", urgent.id) in node.begun for node in nodes):
                    await asyncio.sleep(0.005)
            took.append(time.monotonic() - since)
        for node in nodes:
            node.go_on.set()
    assert max(took) < PATIENCE_MS / 1000, took


async def test_no_task_is_preempted_while_a_slot_is_free_elsewhere(postgres_store: str, stack: AsyncExitStack) -> None:
    full, free = _Node(postgres_store, "long", "short urgent"), _Node(postgres_store, "short urgent")
    async with stack:
        await _open(stack, full, free)
        await full.scheduler.submit(Submission("d::long", {}, priority=Priority.LOW))
        await full.has_begun(1)
        await free.has_told_its_slots()
        for _ in range(10):
            urgent = await full.scheduler.submit(Submission("d::short urgent", {}, priority=Priority.CRITICAL))
            await urgent.result(timeout=LONG)
        full.go_on.set()
    assert [name for name, _ in full.begun] == ["long"]
    assert len(free.ended) == 10


async def test_no_task_is_preempted_before_a_check_for_nodes_that_are_not_known_yet(
    postgres_store: str, stack: AsyncExitStack
) -> None:
    full, free = _Node(postgres_store, "long", "short urgent"), _Node(postgres_store, "short urgent")
    async with stack:
        await _open(stack, full)
        await full.scheduler.submit(Submission("d::long", {}, priority=Priority.LOW))
        await full.has_begun(1)
        # The notification about the other node is lost.
        full.scheduler._store._heartbeat._news = lambda *_: None  # type: ignore[attr-defined]
        await _open(stack, free)
        await free.has_told_its_slots()
        for count in range(1, 5):
            await full.scheduler.submit(Submission("d::short urgent", {}, priority=Priority.CRITICAL))
            await free.has_begun(count)
        full.go_on.set()
    assert [name for name, _ in full.begun] == ["long"]


async def test_a_preempted_task_continues_where_a_slot_is_free(postgres_store: str, stack: AsyncExitStack) -> None:
    first, second = _Node(postgres_store, "long", "urgent"), _Node(postgres_store, "long")
    async with stack:
        await _open(stack, first)
        victim = await first.scheduler.submit(Submission("d::long", {}, priority=Priority.LOW))
        await first.has_begun(1)
        await first.scheduler.submit(Submission("d::urgent", {}, priority=Priority.CRITICAL))
        await first.has_begun(2)
        assert first.begun[1][0] == "urgent"
        await _open(stack, second)
        await second.has_begun(1)
        assert second.begun == [("long", victim.id)]
        second.go_on.set()
        await victim.result(timeout=LONG)
        first.go_on.set()
