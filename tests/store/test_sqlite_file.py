"""The SQLite file: permissions, migrations, locks of other processes, and faults in the middle of a write."""

from __future__ import annotations

import asyncio
import sqlite3
import stat
import threading
from datetime import timedelta
from pathlib import Path

import pytest

from taskmill import Domain, Scheduler, SchemaTooNew, StoreBusy, StoreError
from taskmill.core.clock import SystemClock
from taskmill.model.controls import Pause, Scope, ScopeKind
from taskmill.model.filters import Filters
from taskmill.model.turn import Starts, Turn
from taskmill.store.sql.connection import Connection as AnyConnection
from taskmill.store.sql.group_commit import Request
from taskmill.store.sqlite import store as store_module
from taskmill.store.sqlite import writer as writer_module
from taskmill.store.sqlite.connection import Connection, connect
from taskmill.store.sqlite.log import CHECKPOINT_BYTES, LogFile
from taskmill.store.sqlite.migrate import MIGRATIONS, NEWEST_VERSION, statements
from taskmill.store.sqlite.reading import check_file_not_sealed
from taskmill.store.sqlite.session import Session
from taskmill.store.sqlite.store import SqliteStore
from taskmill.testing import ManualClock
from tests.store.clocks import StillClock
from tests.store.contract import new_task


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "t.db")


async def test_the_file_and_its_companions_are_for_their_owner_only(path: str) -> None:
    domain = Domain("d")

    @domain.task
    async def work() -> None: ...

    async with Scheduler(path, domains=[domain]) as scheduler:
        await work.submit()
        await scheduler.run_until_idle()
        for suffix in ("", "-wal", "-shm", "-dispatch"):
            mode = Path(path + suffix).stat().st_mode
            assert stat.S_IMODE(mode) == 0o600, f"{suffix or 'the file'} is {stat.filemode(mode)}"


async def test_migrations_are_numbered_recorded_and_applied_once(path: str) -> None:
    for _ in range(2):
        async with Scheduler(path):
            pass
    raw = sqlite3.connect(path)
    assert raw.execute("SELECT version, name FROM taskmill_schema ORDER BY 1").fetchall() == [
        (number, name) for number, name, _ in MIGRATIONS
    ]
    assert [number for number, _, _ in MIGRATIONS] == list(range(1, NEWEST_VERSION + 1))
    raw.close()


async def test_a_file_of_an_older_version_keeps_its_tasks_and_its_pauses(path: str) -> None:
    raw = sqlite3.connect(path, isolation_level=None)
    (_, name, first), *_ = MIGRATIONS
    raw.execute("CREATE TABLE taskmill_schema (version INTEGER PRIMARY KEY, name TEXT NOT NULL) STRICT")
    for statement in statements(first):
        raw.execute(statement)
    raw.execute("INSERT INTO taskmill_schema VALUES (1, ?)", (name,))
    raw.execute(
        "INSERT INTO taskmill_task"
        " (type, group_name, priority, urgency, status, payload, created_at, queued_at, expires_at)"
        " VALUES ('d::work', 'g', 128, 128, 'pending', '{}', 1000, 1000, 5000)"
    )
    raw.execute("INSERT INTO taskmill_control (kind, name, paused_at) VALUES ('group', 'g', 2000)")
    raw.close()
    store = SqliteStore(path, "full", StillClock())
    await store.open()
    group = Scope(ScopeKind.GROUP, "g")
    assert (await store.controls()).pauses == {group: Pause(2000)}
    assert await store.resume(group, 9000)
    (task,) = (await store.turn(Turn(now=9000, starts=Starts(claims=[1])))).claimed
    assert (task.queued_at, task.expires_at) == (8000, 12000)
    await store.close()


async def test_a_file_of_an_older_schema_keeps_its_tasks_and_their_order(path: str) -> None:
    raw = sqlite3.connect(path)
    raw.executescript(MIGRATIONS[0][2])
    raw.execute("CREATE TABLE taskmill_schema (version INTEGER PRIMARY KEY, name TEXT NOT NULL) STRICT")
    raw.execute("INSERT INTO taskmill_schema VALUES (1, 'first')")
    raw.executemany(
        "INSERT INTO taskmill_task (type, key, group_name, priority, urgency, status, payload, created_at, queued_at)"
        " VALUES ('d::work', ?, '', 128, 128, 'pending', ?, 7, 7)",
        [(str(n), f'{{"n":{n}}}') for n in range(5)],
    )
    raw.execute(
        "UPDATE taskmill_task SET status = 'running', attempt = 1, tags = '{\"a\":\"b\"}',"
        " rerun = json_array('{\"n\":200}', NULL) WHERE id = 5"
    )
    raw.execute("INSERT INTO taskmill_task_tag VALUES ('a', 'b', 5)")
    raw.commit()
    raw.close()
    domain, ran = Domain("d"), list[int]()

    @domain.task(on_duplicate="supersede")
    async def work(n: int) -> None:
        ran.append(n)

    async with Scheduler(path, domains=[domain], max_concurrency=1) as scheduler:
        await work.options(key="1").submit(100)
        await scheduler.run_until_idle()
        assert [record.payload["n"] for record in await scheduler.history(tags={"a": "b"})] == [200, 4]
    assert ran == [0, 100, 2, 3, 4, 200]


async def test_a_newer_schema_is_refused_and_left_alone(path: str) -> None:
    async with Scheduler(path):
        pass
    raw = sqlite3.connect(path)
    raw.execute("INSERT INTO taskmill_schema VALUES (999, 'from the future')")
    raw.commit()
    before = list(raw.iterdump())
    with pytest.raises(SchemaTooNew, match="999"):
        async with Scheduler(path):
            pass
    assert list(raw.iterdump()) == before
    raw.close()


async def test_the_queue_shares_the_applications_file(path: str) -> None:
    raw = sqlite3.connect(path)
    raw.executescript("PRAGMA user_version = 42; CREATE TABLE task (mine TEXT); INSERT INTO task VALUES ('kept');")
    async with Scheduler(path):
        pass
    assert raw.execute("SELECT mine FROM task").fetchall() == [("kept",)]
    assert raw.execute("PRAGMA user_version").fetchone() == (42,)
    raw.close()


async def test_a_lock_held_by_another_process_delays_and_is_never_shown(path: str) -> None:
    store = SqliteStore(path, "full", SystemClock())
    await store.open()
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    adding = asyncio.ensure_future(store.add([new_task()]))
    reading = await store.count(Filters())
    assert reading == 0, "readers do not wait"
    assert not adding.done()
    other.execute("COMMIT")
    assert (await adding)[0].kind == "inserted"
    other.close()
    await store.close()


async def test_the_first_read_of_a_new_connection_waits_for_other_processes(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process may be recovering the log just then, which locks out readers too."""
    patience: list[int] = []
    check = check_file_not_sealed

    def noted(connection: Connection, name: str) -> None:
        patience.append(connection.execute("PRAGMA busy_timeout").fetchone()[0])
        check(connection, name)

    monkeypatch.setattr(store_module, "check_file_not_sealed", noted)
    store = SqliteStore(path, "full", SystemClock())
    await store.open()
    left = store._connection.execute("PRAGMA busy_timeout").fetchone()
    await store.close()
    assert patience == [60_000]
    assert left == (0,), "the writer waits in its thread, where it does not block the loop"


async def test_a_lock_that_is_never_given_up_is_a_clear_error(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "LOCK_PATIENCE", 0.05)
    store = SqliteStore(path, "full", SystemClock())
    await store.open()
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreBusy, match="another process"):
        await store.add([new_task()])
    other.execute("COMMIT")
    assert await store.count(Filters()) == 0, "a refused task is not stored"
    await store.add([new_task()])
    other.close()
    await store.close()


async def test_one_faulty_request_does_not_fail_those_that_share_its_transaction(path: str) -> None:
    connection = connect(path)
    connection.execute("CREATE TABLE t (n INTEGER PRIMARY KEY)")
    writer = writer_module.Writer(Session(connection), None, path, full=True, clock=SystemClock())

    def insert(n: int) -> Request[int]:
        def request(connection: AnyConnection) -> int:
            connection.execute("INSERT INTO t VALUES (?)", (n,))
            return n

        return request

    answers = await asyncio.gather(*(writer.ask(insert(n)) for n in (1, 2, 2, 3)), return_exceptions=True)
    assert [answer for answer in answers if not isinstance(answer, Exception)] == [1, 2, 3]
    assert isinstance(answers[2], StoreError)
    assert connection.execute("SELECT n FROM t").fetchall() == [(1,), (2,), (3,)]
    await writer.close()
    connection.close()


async def test_concurrent_requests_share_commits(path: str) -> None:
    store = SqliteStore(path, "full", SystemClock())
    await store.open()
    before = store._writer.commits
    await asyncio.gather(*(store.add([new_task()]) for _ in range(200)))
    assert store._writer.commits - before <= 3
    assert await store.count(Filters()) == 200
    await store.close()


async def test_a_submit_is_answered_even_if_its_commit_cannot_be_announced(
    path: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = SqliteStore(path, "full", SystemClock())
    await store.open()

    def faulty(_commit: object) -> None:
        raise ValueError("not announced")

    store.committed = faulty
    async with asyncio.timeout(30):
        (stored,) = await store.add([new_task()])
    assert await store.get(stored.id) is not None
    assert "a callback of the store failed" in caplog.text
    await store.close()


async def test_the_log_is_copied_back_and_stays_bounded(path: str) -> None:
    store = SqliteStore(path, "process", SystemClock())
    await store.open()
    payload = '"' + "x" * 100_000 + '"'
    for _ in range(40):
        await store.add([new_task(payload) for _ in range(10)])
    assert Path(path + "-wal").stat().st_size < 4 * CHECKPOINT_BYTES
    assert await store.count(Filters()) == 400
    await store.close()


async def test_a_durable_task_survives_without_closing(path: str) -> None:
    """A second connection sees everything acknowledged, as a process after a kill would."""
    store = SqliteStore(path, "full", SystemClock())
    await store.open()
    (stored,) = await store.add([new_task()])
    raw = sqlite3.connect(path)
    assert raw.execute("SELECT id FROM taskmill_task").fetchall() == [(stored.id,)]
    assert raw.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    raw.close()
    await store.close()


async def test_with_full_durability_no_call_returns_before_the_disk_has_it(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_sync, synced = threading.Event(), threading.Event()
    really_sync = LogFile.sync

    def slow_sync(log: LogFile) -> None:
        may_sync.wait(30)
        really_sync(log)
        synced.set()

    store = SqliteStore(path, "full", SystemClock())
    await store.open()
    await store.durable()
    monkeypatch.setattr(LogFile, "sync", slow_sync)
    told: list[int] = []
    store.committed = lambda arrived: told.extend(id for id, _ in arrived.fresh)
    adding = asyncio.ensure_future(store.add([new_task()]))
    while not told:
        await asyncio.sleep(0)
    assert await store.count(Filters()) == 1, "it is committed, and may already be dispatched"
    assert not adding.done(), "but it is not acknowledged as durable"
    may_sync.set()
    await adding
    assert synced.is_set()
    await store.close()


async def test_facts_read_the_whole_file_only_when_its_integrity_is_asked_for(path: str) -> None:
    asked: list[str] = []
    async with Scheduler(path) as scheduler:
        store = scheduler._store
        assert isinstance(store, SqliteStore)
        store._reading.set_trace_callback(asked.append)
        assert "integrity" not in await scheduler.facts()
        assert not [statement for statement in asked if "check" in statement]
        assert (await scheduler.facts(integrity=True))["integrity"] == "ok"


async def test_process_durability_never_waits_for_the_disk(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(_log: LogFile) -> None:
        raise AssertionError("the disk was asked")

    monkeypatch.setattr(LogFile, "sync", never)
    store = SqliteStore(path, "process", SystemClock())
    await store.open()
    await store.add([new_task()])
    await store.close()


def test_connections_never_copy_the_log_back_by_themselves_nor_map_the_file(path: str) -> None:
    connection = connect(path)
    assert connection.execute("PRAGMA wal_autocheckpoint").fetchone() == (0,)
    assert connection.execute("PRAGMA mmap_size").fetchone() == (0,)
    # A commit reaches the log; syncing the log to the disk is a separate step of the writer.
    assert connection.execute("PRAGMA synchronous").fetchone() == (1,)
    connection.close()


async def test_endings_that_no_caller_awaits_reach_the_disk_within_a_moment(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = asyncio.Event()
    loop = asyncio.get_running_loop()
    really_sync = LogFile.sync

    def noted(log: LogFile) -> None:
        really_sync(log)
        loop.call_soon_threadsafe(synced.set)

    domain = Domain("d")
    ran = asyncio.Event()

    @domain.task
    async def work() -> None:
        ran.set()

    async with Scheduler(path, domains=[domain]) as scheduler, scheduler.running():
        await work.submit()
        await ran.wait()
        monkeypatch.setattr(LogFile, "sync", noted)
        await asyncio.wait_for(synced.wait(), 10)
        assert await scheduler.count(status="completed") == 1


async def test_a_series_of_the_first_schema_continues_and_survives_a_step_of_the_clock(
    tmp_path: Path,
) -> None:
    domain, clock = Domain("d"), ManualClock()
    starts: list[float] = []

    @domain.task
    async def tick() -> None:
        starts.append(clock.monotonic())

    async with Scheduler(tmp_path / "new.db", domains=[domain], clock=clock) as scheduler:
        await tick.options(every=60).submit()
        await scheduler.run_until_idle()
    (number, name, sql), *_ = MIGRATIONS
    raw = sqlite3.connect(tmp_path / "old.db")
    raw.executescript(sql)
    raw.execute("CREATE TABLE taskmill_schema (version INTEGER PRIMARY KEY, name TEXT NOT NULL) STRICT")
    raw.execute("INSERT INTO taskmill_schema VALUES (?, ?)", (number, name))
    raw.execute("ATTACH ? AS new", (str(tmp_path / "new.db"),))
    for table in ("taskmill_series", "taskmill_task"):
        new = {row[1] for row in raw.execute(f"PRAGMA new.table_info({table})")}
        columns = ", ".join(row[1] for row in raw.execute(f"PRAGMA main.table_info({table})") if row[1] in new)
        raw.execute(f"INSERT INTO {table} ({columns}) SELECT {columns} FROM new.{table}")
    raw.execute("UPDATE taskmill_task SET due_is_relative = 0")
    raw.commit()
    raw.close()
    async with Scheduler(tmp_path / "old.db", domains=[domain], clock=clock) as scheduler, scheduler.running():
        await clock.advance(10)
        await clock.jump(timedelta(days=-1))
        await clock.advance(110)
    assert starts == [0, 60, 120]
