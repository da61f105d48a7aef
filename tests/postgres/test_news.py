"""Notifications between nodes: sent at once when there is something to do, and none when there is not."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from statistics import median

import psycopg
import pytest

from taskmill import Domain, Priority, Retry, Scheduler, Submission
from taskmill.model.commit import ANY_CHANGES, MOST_QUEUED, Changes
from taskmill.model.turn import Turn, TurnResult
from taskmill.store.postgres import heartbeat, news
from taskmill.store.postgres.news import CommitCounter, WaitingChanges

QUIET = 1.5
"""Seconds in which nothing may be committed; a node that wakes another one does so within a fraction of that."""
LONG = 30
"""Seconds: longer than anything here takes."""
AT_ONCE = 0.1
"""Seconds: many times as long as a notification takes, and a small part of a heartbeat interval."""


def _domain(began: list[float]) -> Domain:
    domain = Domain("d")

    @domain.task
    async def work() -> None:
        began.append(time.monotonic())

    return domain


async def test_idle_nodes_do_not_wake_each_other_forever(postgres_store: str) -> None:
    began: list[float] = []
    one, two = (Scheduler(postgres_store, domains=[_domain(began)]) for _ in range(2))
    async with one, two, one.running(), two.running():
        handles = await one.submit_many([Submission("d::work", {}) for _ in range(20)])
        for handle in handles:
            await handle.result(timeout=30)
        with psycopg.connect(postgres_store, autocommit=True) as connection:

            def commits() -> object:
                return connection.execute("SELECT last_value FROM taskmill_change").fetchone()

            async with asyncio.timeout(20):
                before = None
                while before != commits():
                    before = commits()
                    await asyncio.sleep(QUIET)
            turns = [scheduler._store._writer.commits for scheduler in (one, two)]  # type: ignore[attr-defined]
            await asyncio.sleep(QUIET)
            after = commits()
            more = [scheduler._store._writer.commits for scheduler in (one, two)]  # type: ignore[attr-defined]
    assert after == before
    # Now and then a node polls anyway.
    assert all(later - earlier <= 2 for earlier, later in zip(turns, more, strict=True)), (turns, more)


async def test_a_submission_reaches_an_idle_node_by_notification(
    postgres_store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No node polls by itself before the test is over.
    monkeypatch.setattr(heartbeat, "BEAT", 15.0)
    began: list[float] = []
    took: list[float] = []
    async with (
        Scheduler(postgres_store) as producer,
        Scheduler(postgres_store, domains=[_domain(began)]) as node,
        node.running(),
    ):
        for _ in range(15):
            # By then the node is idle, and its last notifications are processed.
            await asyncio.sleep(0.1)
            since = time.monotonic()
            await producer.submit(Submission("d::work", {}))
            async with asyncio.timeout(30):
                while len(began) <= len(took):
                    await asyncio.sleep(0.001)
            took.append(began[-1] - since)
    assert median(took) < AT_ONCE, took


# Notifications of a commit


class _Node:
    """A node whose surveys are counted. "long" waits for ``go_on``; "flaky" waits for ``fail``, if any, and fails."""

    def __init__(self, address: str, *types: str, slots: int = 1) -> None:
        self.begun: list[str] = []
        self.surveys = 0
        self.go_on = asyncio.Event()
        self.fail: asyncio.Event | None = None
        self._changed = asyncio.Condition()
        domain = Domain("d")
        for type in types:
            domain.task(name=type, retry=Retry.constant(3, 0))(self._handler(type))
        self.scheduler = Scheduler(address, domains=[domain], max_concurrency=slots, shutdown_grace=0)

    def _handler(self, type: str) -> Callable[[], Awaitable[None]]:
        async def handler() -> None:
            self.begun.append(type)
            async with self._changed:
                self._changed.notify_all()
            if type == "long":
                await self.go_on.wait()
            if type == "flaky" and self.fail is not None:
                await self.fail.wait()
                raise ValueError

        return handler

    def count_surveys(self) -> None:
        commit = self.scheduler._store.turn

        async def watched(turn: Turn) -> TurnResult:
            self.surveys += turn.look.survey
            return await commit(turn)

        self.scheduler._store.turn = watched  # type: ignore[method-assign]

    async def has_begun(self, *types: str) -> None:
        async with asyncio.timeout(LONG), self._changed:
            await self._changed.wait_for(lambda: len(self.begun) >= len(types))
        assert self.begun == list(types)


@contextlib.asynccontextmanager
async def _running(*nodes: _Node) -> AsyncGenerator[None, None]:
    """Run nodes until all know of each other; count their surveys from then on."""
    async with contextlib.AsyncExitStack() as stack:
        for node in nodes:
            await stack.enter_async_context(node.scheduler)
            await stack.enter_async_context(node.scheduler.running())
        await _settled(*nodes)
        yield


async def _settled(*nodes: _Node) -> None:
    """Wait until no node makes surveys any more."""
    for node in nodes:
        node.count_surveys()
    async with asyncio.timeout(LONG):
        while True:
            await asyncio.sleep(10 * heartbeat.MOMENT)
            if not any(node.surveys for node in nodes):
                return
            for node in nodes:
                node.surveys = 0


@pytest.fixture
def no_surveys_anyway(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "LOOK_ANYWAY", 10**9)
    monkeypatch.setattr(news, "PATIENCE", 30.0)


@pytest.mark.usefixtures("no_surveys_anyway")
async def test_a_transaction_that_commits_after_others_with_higher_ids_is_found_without_a_survey(
    postgres_store: str,
) -> None:
    node = _Node(postgres_store, "early", "late")
    async with _running(node):
        with psycopg.connect(postgres_store) as slow:
            early = await node.scheduler.submit(Submission("d::early", {}), connection=slow)
            async with Scheduler(postgres_store) as producer:
                node.surveys = 0
                late = await producer.submit(Submission("d::late", {}))
                await node.has_begun("late")
                slow.commit()
                await node.has_begun("late", "early")
    assert early.id < late.id
    assert node.surveys == 0


@pytest.mark.usefixtures("no_surveys_anyway")
async def test_a_long_transaction_of_a_caller_elsewhere_is_found_without_a_survey(postgres_store: str) -> None:
    node = _Node(postgres_store, "short")
    async with _running(node), Scheduler(postgres_store) as producer:
        with psycopg.connect(postgres_store) as long:
            await producer.submit(Submission("d::short", {}), connection=long)
            for n in range(5):
                await (await producer.submit(Submission("d::short", {}))).wait(timeout=LONG)
                await producer.submit(Submission("d::short", {}, group=str(n)), connection=long)
            await producer.submit(Submission("d::short", {}), connection=long)
            node.surveys = 0
            long.commit()
            await node.has_begun(*["short"] * 12)
    assert node.surveys == 0


@pytest.mark.usefixtures("no_surveys_anyway")
async def test_a_task_that_one_node_releases_starts_on_another_without_a_survey(postgres_store: str) -> None:
    one, two = _Node(postgres_store, "long"), _Node(postgres_store, "dependent")
    async with _running(one, two):
        first = await one.scheduler.submit(Submission("d::long", {}))
        await one.has_begun("long")
        # Another task waits, so the node does not claim the one that it releases.
        await one.scheduler.submit(Submission("d::long", {}))
        await one.scheduler.submit(Submission("d::dependent", {}, depends_on=[first]))
        await _settled(one, two)
        one.go_on.set()
        await two.has_begun("dependent")
        assert two.surveys == 0


@pytest.mark.usefixtures("no_surveys_anyway")
async def test_a_task_that_fails_on_one_node_is_retried_on_another_without_a_survey(postgres_store: str) -> None:
    one, two = _Node(postgres_store, "flaky", "long"), _Node(postgres_store, "flaky")
    one.fail = asyncio.Event()
    async with _running(one):
        await one.scheduler.submit(Submission("d::flaky", {}))
        await one.has_begun("flaky")
        await one.scheduler.submit(Submission("d::long", {}, priority=Priority.HIGH))
        async with _running(two):
            one.fail.set()
            await two.has_begun("flaky")
            assert two.surveys == 0
            assert one.begun == ["flaky", "long"]


@pytest.mark.usefixtures("no_surveys_anyway")
async def test_an_ending_on_one_node_leads_to_no_survey_on_another(postgres_store: str) -> None:
    one, two = _Node(postgres_store, "short", slots=4), _Node(postgres_store, "other")
    async with _running(one, two):
        for _ in range(5):
            handles = await one.scheduler.submit_many([Submission("d::short", {}) for _ in range(20)])
            for handle in handles:
                await handle.wait(timeout=LONG)
    assert two.surveys == 0


async def test_a_producer_that_sends_no_notifications_is_noticed_by_the_count(postgres_store: str) -> None:
    node = _Node(postgres_store, "short")
    async with _running(node), Scheduler(f"{postgres_store}&notifications=off") as producer:
        for n in range(3):
            since = time.monotonic()
            await producer.submit(Submission("d::short", {}))
            await node.has_begun(*["short"] * (n + 1))
            assert time.monotonic() - since < heartbeat.BEAT + news.PATIENCE + 1


def test_a_notification_names_the_queued_tasks() -> None:
    changes = Changes(frozenset({7, 5, 6, 9}))
    text = news.notification("me", changes, 3)
    assert text == '["me",3,[[5,7],[9,9]]]'
    read = news.read_notification(text)
    assert (read.sender, read.commits, read.changes) == ("me", 3, changes)


def test_too_many_tasks_are_not_named() -> None:
    changes = Changes(frozenset(range(10**18, 10**18 + 1000, 2)))
    read = news.read_notification(news.notification("me", changes, 3))
    assert (read.commits, read.changes) == (3, ANY_CHANGES)
    pending = WaitingChanges()
    for n in range(MOST_QUEUED + 1):
        pending.add(Changes(frozenset({n})), commits=1)
    assert pending.take() == (ANY_CHANGES, MOST_QUEUED + 1)
    assert pending.take() is None


def test_the_notification_of_an_older_version_may_mean_anything() -> None:
    read = news.read_notification("0123456789abcdef")
    assert (read.sender, read.commits, read.changes) == ("0123456789abcdef", 0, ANY_CHANGES)


def test_a_commit_that_was_told_in_time_is_not_missed() -> None:
    count = CommitCounter(1.0)
    count.count(100, 40, 0.0)
    count.tell(2)
    count.count(105, 43, 1.0)
    assert not count.has_missed(9.0)
    count.count(106, 43, 10.0)
    assert not count.has_missed(10.5)
    count.tell(1)
    assert not count.has_missed(11.0)


def test_a_commit_that_was_not_told_is_missed_and_looked_for_twice() -> None:
    count = CommitCounter(1.0)
    count.count(100, 40, 0.0)
    count.count(101, 40, 1.0)
    assert [count.has_missed(now) for now in (1.5, 2.0, 2.1, 3.0, 3.1, 9.0)] == [False, True, False, True, False, False]


def test_an_own_commit_under_way_hides_no_commit_for_long() -> None:
    count = CommitCounter(1.0)
    count.count(100, 40, 0.0)
    count.count(101, 41, 1.0)  # one of another node; the own one has not reached the sequence
    assert not count.has_missed(9.0)
    count.count(102, 41, 10.0)
    assert count.has_missed(11.0)


def test_a_notification_that_came_late_hides_no_later_commit_for_long() -> None:
    count = CommitCounter(1.0)
    count.count(100, 40, 0.0)
    count.count(101, 40, 1.0)
    assert count.has_missed(2.0)
    count.tell(1)
    count.count(101, 40, 3.0, anew=True)
    count.has_missed(9.0)
    count.count(102, 40, 10.0)
    assert count.has_missed(11.0)
