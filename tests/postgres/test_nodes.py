"""Several nodes on one database: a task is claimed once, a key held once, and no row is forgotten between nodes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, aclosing

import psycopg
import pytest

from taskmill import Context, Domain, HistoryRecord, Scheduler, Submission
from taskmill.core.clock import SystemClock
from taskmill.errors import InvalidState, SubmissionError
from taskmill.events import TaskDispatched
from taskmill.model.attempt import End
from taskmill.model.cluster import Ask, Preemption
from taskmill.model.filters import Filters
from taskmill.model.status import Ending, OnDuplicate
from taskmill.model.task import Links, NewTask, Origin
from taskmill.model.turn import Judged, Look, Starts, Turn
from taskmill.store.postgres import heartbeat, lease
from taskmill.store.postgres.store import PostgresStore
from tests.store.contract.samples import NOW, TYPE, add, claim, commit, ended, new_task

OpenStore = Callable[[], Awaitable[PostgresStore]]


@pytest.fixture
async def open_node(postgres_store: str) -> AsyncIterator[OpenStore]:
    async with AsyncExitStack() as stack:

        async def make() -> PostgresStore:
            store = PostgresStore(postgres_store, "full", SystemClock())
            await store.open()
            stack.push_async_callback(store.close)
            return store

        yield make


async def test_nodes_that_start_at_once_make_one_schema(open_node: OpenStore) -> None:
    stores = await asyncio.gather(*(open_node() for _ in range(6)))
    (id,) = await add(stores[0], new_task())
    assert [(await store.tasks(Filters()))[0].id for store in stores] == [id] * 6


async def test_a_task_is_claimed_by_one_node(open_node: OpenStore) -> None:
    stores = await asyncio.gather(*(open_node() for _ in range(4)))
    ids = await add(stores[0], *(new_task() for _ in range(200)))
    claimed: list[int] = []
    for _ in range(10):
        found = await asyncio.gather(*(claim(store, *ids) for store in stores))
        claimed += [task.id for tasks in found for task in tasks]
    assert sorted(claimed) == ids


async def test_ids_of_one_request_are_consecutive_whatever_else_is_submitted(open_node: OpenStore) -> None:
    stores = await asyncio.gather(*(open_node() for _ in range(3)))

    def request(i: int) -> list[NewTask]:
        return [new_task(key=f"{i}-{n}" if i % 2 and n % 2 else None) for n in range(7)]

    runs = await asyncio.gather(*(add(stores[i % 3], *request(i)) for i in range(60)))
    assert all(run == list(range(run[0], run[0] + 7)) for run in runs)
    assert len({id for run in runs for id in run}) == 7 * len(runs)


async def test_a_key_is_held_once_however_many_nodes_want_it(open_node: OpenStore) -> None:
    stores = await asyncio.gather(*(open_node() for _ in range(4)))
    kinds = [
        stored.kind
        for answers in await asyncio.gather(*(store.add([new_task(key="k")]) for store in stores for _ in range(5)))
        for stored in answers
    ]
    assert sorted(kinds) == ["duplicate"] * 19 + ["inserted"]
    chain = await asyncio.gather(
        *(store.add([new_task(key="k", on_duplicate=OnDuplicate.SUPERSEDE)]) for store in stores for _ in range(5))
    )
    assert {answers[0].kind for answers in chain} == {"superseded"}
    assert await stores[0].count(Filters(status=Ending.SUPERSEDED)) == 20
    assert await stores[0].count(Filters(key="k")) == 1


async def test_the_last_child_wakes_its_parent_whichever_nodes_its_children_end_on(open_node: OpenStore) -> None:
    one, two = await open_node(), await open_node()
    for _ in range(10):
        (parent,) = await add(one, new_task())
        (task,) = await claim(one, parent)
        origin = Origin(parent, task.attempt, sibling=False, fail_fast=True, max_children=None, effective=128)
        children = [stored.id for stored in await one.spawn([new_task() for _ in range(8)], origin)]
        await commit(one, task, End(Ending.COMPLETED, "1"))
        on_one, on_two = await claim(one, *children[:4]), await claim(two, *children[4:])
        done = End(Ending.COMPLETED, "1")
        await asyncio.gather(
            *(
                store.turn(Turn(now=NOW, judged=[Judged(child, done, 1)]))
                for store, tasks in ((one, on_one), (two, on_two))
                for child in tasks
            )
        )
        assert (await ended(one, parent)).ending == Ending.COMPLETED


async def test_a_dependent_is_released_whichever_nodes_its_dependencies_end_on(open_node: OpenStore) -> None:
    one, two = await open_node(), await open_node()
    for _ in range(10):
        first, second = await add(one, new_task(), new_task())
        waits = new_task(links=Links(depends_on=(first, second)))
        (dependent,) = await add(two, waits)
        (a,), (b,) = await claim(one, first), await claim(two, second)
        await asyncio.gather(commit(one, a, End(Ending.COMPLETED, "1")), commit(two, b, End(Ending.COMPLETED, "1")))
        assert [task.id for task in await claim(one, dependent)] == [dependent]


async def test_a_dependency_that_ends_while_its_dependent_is_stored_is_not_waited_for(open_node: OpenStore) -> None:
    one, two = await open_node(), await open_node()
    for _ in range(20):
        (first,) = await add(one, new_task())
        (task,) = await claim(one, first)
        dependent, _ = await asyncio.gather(
            add(two, new_task(links=Links(depends_on=(first,)))),
            commit(one, task, End(Ending.COMPLETED, "1")),
        )
        assert [task.id for task in await claim(one, *dependent)] == dependent


async def test_a_commit_of_one_node_is_noticed_by_another(open_node: OpenStore) -> None:
    one, two = await open_node(), await open_node()
    await two.foreign_changes()
    await add(one, new_task())

    async def heard(store: PostgresStore) -> bool:
        for _ in range(500):
            if await store.foreign_changes():
                return True
            await asyncio.sleep(0.01)
        return False

    assert await heard(two)


# Nodes that die


async def test_the_tasks_of_a_live_node_belong_to_no_other(open_node: OpenStore) -> None:
    one, two = await open_node(), await open_node()
    right = await one.acquire_dispatch()
    (id,) = await add(one, new_task())
    await claim(one, id)
    assert (await two.recover(NOW)).returned == 0
    right.release()


async def test_the_tasks_of_a_dead_node_return_and_its_late_word_counts_for_nothing(
    open_node: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeat, "BEAT", 3600.0)
    one, two = await open_node(), await open_node()
    rights = [await store.acquire_dispatch() for store in (one, two)]
    (id,) = await add(one, new_task())
    (old,) = await claim(one, id)
    monkeypatch.setattr(lease, "LEASE", 0.0)
    assert (await two.recover(NOW)).returned == 1
    (new,) = await claim(two, id)
    assert (old.attempt, new.attempt) == (1, 2)
    assert (await commit(one, old, End(Ending.COMPLETED, "1"))).lost == {(id, 1): None}
    assert not await one.save(id, old.attempt, "{}")
    origin = Origin(id, old.attempt, sibling=False, fail_fast=True, max_children=None, effective=128)
    with pytest.raises(InvalidState):
        await one.spawn([new_task()], origin)
    assert (await commit(two, new, End(Ending.COMPLETED, "2"))).lost == {}
    assert (await ended(one, id)).result == 2
    for right in rights:
        right.release()


# Inside a transaction of the caller's own


async def test_a_task_submitted_in_a_transaction_exists_when_that_commits(
    open_node: OpenStore, postgres_store: str
) -> None:
    store = await open_node()
    with psycopg.connect(postgres_store) as connection:
        connection.execute("CREATE TABLE orders (n int)")
        connection.commit()
        connection.execute("INSERT INTO orders VALUES (1)")
        (plain,) = store.add_through(connection, [new_task()])
        assert await store.count(Filters()) == 0
        # Meanwhile no other transaction waits for this one.
        await asyncio.wait_for(add(store, new_task(), new_task(key="other")), 10)
        connection.commit()
        assert {task.id for task in await store.tasks(Filters())} >= {plain.id}
        connection.execute("INSERT INTO orders VALUES (2)")
        store.add_through(connection, [new_task(key="k")])
        connection.rollback()
        assert await store.find("d::t", "k") is None
        (keyed,) = store.add_through(connection, [new_task(key="k")])
        (again,) = store.add_through(connection, [new_task(key="k")])
        assert (keyed.kind, again.kind, again.id) == ("inserted", "duplicate", keyed.id)
        connection.commit()
        assert connection.execute("SELECT count(*) FROM orders").fetchone() == (1,)


async def test_a_connection_to_another_place_is_refused(
    open_node: OpenStore, postgres_store: str, postgres_server: str
) -> None:
    store = await open_node()
    with (
        psycopg.connect(postgres_server) as elsewhere,
        pytest.raises(SubmissionError, match="another server, database or schema"),
    ):
        store.add_through(elsewhere, [new_task()])
    with pytest.raises(SubmissionError, match=r"must be a psycopg\.Connection"):
        store.add_through(object(), [new_task()])


# Whole schedulers


def _domain(ran: list[tuple[str, int]], node: str) -> Domain:
    domain = Domain("d")

    @domain.task
    async def work(n: int) -> int:
        ran.append((node, n))
        await asyncio.sleep(0)
        return n

    @domain.task
    async def family(ctx: Context, n: int) -> int:
        await ctx.spawn_many([work.prepare(1000 * n + k) for k in range(4)])
        return n

    @family.finalize
    async def finish(ctx: Context, n: int) -> int:
        return len(ctx.children)

    @domain.task
    async def endless(ctx: Context) -> None:
        ran.append((node, -1))
        await asyncio.Event().wait()

    return domain


async def test_schedulers_share_the_work_of_one_database(postgres_store: str) -> None:
    ran: list[tuple[str, int]] = []
    one, two = _domain(ran, "one"), _domain(ran, "two")
    async with (
        Scheduler(postgres_store, domains=[one], max_concurrency=4) as first,
        Scheduler(postgres_store, domains=[two], max_concurrency=4) as second,
        first.running(),
        second.running(),
    ):
        plain = await first.submit_many([Submission("d::work", {"n": n}) for n in range(200)])
        families = await second.submit_many([Submission("d::family", {"n": n}) for n in range(1, 11)])
        results = [await handle.result(timeout=60) for handle in plain]
        finals = [await handle.result(timeout=60) for handle in families]
    assert results == list(range(200))
    assert finals == [4] * 10
    assert len(ran) == len({n for _, n in ran}) == 240
    assert {node for node, _ in ran} == {"one", "two"}


async def test_a_task_is_cancelled_wherever_it_runs(postgres_store: str) -> None:
    ran: list[tuple[str, int]] = []
    one = _domain(ran, "one")
    async with (
        Scheduler(postgres_store, domains=[one]) as runner,
        Scheduler(postgres_store) as other,
        runner.running(),
    ):
        async with aclosing(runner.events(TaskDispatched)) as events:
            handle = await runner.submit(Submission("d::endless", {}))
            await anext(events)
        assert await other.cancel(handle.id)
        await asyncio.wait_for(handle.wait(), 20)
        record = await other.get(handle.id)
    assert isinstance(record, HistoryRecord)
    assert record.ending == Ending.CANCELLED


async def test_nodes_that_ask_at_once_preempt_one_task_for_one_that_must_not_wait(open_node: OpenStore) -> None:
    stores = [await open_node() for _ in range(2)]
    tasks: list[int] = []
    for store, priority in zip(stores, (192, 128), strict=True):
        await store.publish_types({TYPE: "{}"})
        await store.acquire_dispatch()
        await store.turn(Turn(NOW, look=Look(slots=1, survey=True)))
        (task,) = await claim(store, *await add(store, new_task(priority=priority)))
        tasks.append(task.id)
    (urgent,) = await add(stores[0], new_task(priority=0))
    plan = Preemption([Ask(urgent, 0, TYPE)], (), None)
    results = await asyncio.gather(
        *(store.turn(Turn(NOW, starts=Starts(preempt=plan))) for store in (*stores, *stores))
    )
    assert sum(len(result.stops) for result in results) <= 1
    surveys = [await store.turn(Turn(NOW, look=Look(slots=1, survey=True))) for store in stores]
    assert [survey.stops for survey in surveys] == [[(tasks[0], "preempt")], []]
