"""Every attempt that fails, exceeds its timeout, gives up or crashes stores one error; no other attempt does."""

from __future__ import annotations

import asyncio
import copy
import os
import pickle
import socket
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from taskmill import (
    AttemptError,
    Context,
    Domain,
    GiveUp,
    HistoryRecord,
    Retention,
    Retry,
    Scheduler,
    TaskRecord,
    to_json,
)
from taskmill.define.task import Task
from taskmill.testing import ManualClock
from taskmill.testing.plugin import SchedulerFactory
from tests.both_engines import name_of
from tests.crash.children import ROOT
from tests.raw_rows import raw
from tests.runtime.errors import failing
from tests.runtime.errors.failing import work
from tests.warm_python import Popen

HERE = f"{socket.gethostname()}:{os.getpid()}"

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tasks.db"


def stored_errors(path: Path) -> int:
    with raw(path) as rows:
        count: int = rows.execute("SELECT count(*) FROM taskmill_error").fetchone()[0]
        return count


async def only_error(scheduler: Scheduler, id: int) -> AttemptError:
    (error,) = (await scheduler.get(id)).errors
    return error


@pytest.mark.parametrize("task", [failing.on_loop, failing.in_thread, failing.in_process, failing.in_process_on_loop])
async def test_a_failed_attempt_leaves_its_traceback_from_the_handler_on(path: Path, task: Task[Any, Any]) -> None:
    async with Scheduler(path, domains=[work]) as scheduler:
        handle = await task.submit("it broke")
        await scheduler.run_until_idle()
        error = await only_error(scheduler, handle.id)
    name = task.type.function.__name__
    assert (error.attempt, error.kind, error.error, error.node) == (1, "failed", "ValueError: it broke", HERE)
    assert error.duration is not None
    assert error.traceback is not None
    lines = error.traceback.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[1].endswith(f'failing.py", line {line_of("raise_deep(message)", name)}, in {name}')
    assert lines[-1] == "ValueError: it broke"
    assert "in raise_deep" in error.traceback
    assert f"taskmill{os.sep}execute" not in error.traceback


def line_of(text: str, function: str) -> int:
    """Return the number of the first line with this text in a function of the handlers."""
    lines = Path(failing.__file__).read_text().splitlines()
    start = next(number for number, line in enumerate(lines) if f"def {function}(" in line)
    return next(number for number, line in enumerate(lines[start:], start + 1) if text in line)


async def test_giving_up_leaves_an_error_of_its_own_kind(taskmill_scheduler: SchedulerFactory) -> None:
    scheduler = await taskmill_scheduler(domains=[work])
    handle = await failing.give_up.submit()
    await scheduler.run_until_idle()
    error = await only_error(scheduler, handle.id)
    assert (error.kind, error.error) == ("gave_up", "no use")
    assert "in give_up" in (error.traceback or "")


async def test_every_attempt_of_a_retried_task_leaves_an_error(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    scheduler = await taskmill_scheduler(domains=[work])
    handle = await failing.retry_later.submit()
    first = manual_clock.now()
    async with scheduler.running():
        await manual_clock.advance(0)
        waiting = await scheduler.get(handle.id)
        assert isinstance(waiting, TaskRecord)
        assert [each.attempt for each in waiting.errors] == [1]
        await manual_clock.advance(5)
        record = await handle.wait()
    assert [(each.attempt, each.kind, each.error) for each in record.errors] == [
        (1, "failed", "busy"),
        (2, "failed", "busy"),
    ]
    assert [each.at for each in record.errors] == [first, first + timedelta(seconds=5)]


@pytest.mark.parametrize("task", [failing.stuck_on_loop, failing.stuck_in_thread])
async def test_a_timeout_leaves_the_place_where_the_handler_was_stuck(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, task: Task[[], Any]
) -> None:
    scheduler = await taskmill_scheduler(domains=[work])
    handle = await task.submit()
    async with scheduler.running():
        await manual_clock.advance(0)
        await manual_clock.advance(3)
        await handle.wait()
    error = await only_error(scheduler, handle.id)
    assert (error.kind, error.error) == ("timeout", "TimeoutError: exceeded its timeout of 2 s")
    assert error.duration is not None
    assert error.duration >= timedelta(seconds=2)
    assert f"in {task.type.function.__name__}" in (error.traceback or "")
    (group,) = await scheduler.error_groups()
    assert group.exception == "TimeoutError"
    assert group.location is not None
    assert group.location.startswith("failing.py:")


async def test_a_timeout_in_a_process_leaves_an_error_without_a_traceback(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    scheduler = await taskmill_scheduler(domains=[work])
    handle = await failing.stuck_in_process.submit()
    async with scheduler.running():
        await manual_clock.advance(0)
        await manual_clock.advance(3)
        await handle.wait()
    error = await only_error(scheduler, handle.id)
    assert (error.kind, error.traceback) == ("timeout", None)


async def test_a_worker_process_that_dies_leaves_a_crash(path: Path) -> None:
    async with Scheduler(path, domains=[work]) as scheduler:
        handle = await failing.kill_own_process.submit()
        await scheduler.run_until_idle()
        record = await handle.record()
    assert [(each.attempt, each.kind, each.traceback) for each in record.errors] == [
        (number, "crashed", None) for number in (1, 2, 3)
    ]
    assert "signal 9" in record.errors[0].error


async def test_a_killed_dispatcher_leaves_a_crash_that_names_it(path: Path) -> None:
    async with Scheduler(path, domains=[work]) as scheduler:
        handle = await failing.say_that_it_runs.submit()
    command = [sys.executable, "-m", "tests.runtime.errors.failing", name_of(path)]
    with Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as victim:
        assert victim.stdout is not None
        assert await asyncio.to_thread(victim.stdout.readline) == b"running\n"
        assert stored_errors(path) == 0
        victim.kill()
    declare_dead(path)
    async with Scheduler(path, domains=[work]) as scheduler:
        assert await scheduler.cancel(handle.id)
        await scheduler.run_until_idle()
        error = await only_error(scheduler, handle.id)
    assert (error.attempt, error.kind, error.traceback, error.duration) == (1, "crashed", None, None)
    assert error.node == f"{socket.gethostname()}:{victim.pid}"


def declare_dead(path: Path) -> None:
    """Let the lease of a killed node expire; a file needs no lease."""
    if "://" in name_of(path):
        with raw(path) as rows:
            rows.execute("UPDATE taskmill_node SET seen_at = now() - interval '1 hour'")


async def test_a_payload_that_does_not_fit_leaves_an_error(path: Path) -> None:
    old, new = Domain("d"), Domain("d")

    @old.task(name="work")
    async def before(path: str) -> None: ...

    @new.task(name="work")
    async def after(path: str, depth: int) -> None: ...

    async with Scheduler(path, domains=[old]):
        handle = await before.submit("a")
    async with Scheduler(path, domains=[new]) as scheduler:
        await scheduler.run_until_idle()
        error = await only_error(scheduler, handle.id)
        record = await scheduler.get(handle.id)
    assert isinstance(record, HistoryRecord)
    assert (error.kind, error.error) == ("failed", record.error)
    assert "depth" in error.error


async def test_a_result_that_cannot_be_stored_leaves_an_error(taskmill_scheduler: SchedulerFactory) -> None:
    domain = Domain("d")

    @domain.task
    async def odd() -> Any:
        return {1, object()}

    scheduler = await taskmill_scheduler(domains=[domain])
    handle = await odd.submit()
    await scheduler.run_until_idle()
    error = await only_error(scheduler, handle.id)
    assert error.kind == "gave_up"
    assert "cannot be stored as JSON" in error.error


async def test_a_failed_finalize_leaves_an_error(taskmill_scheduler: SchedulerFactory) -> None:
    domain = Domain("d", retry=Retry.none())

    @domain.task
    async def child() -> None: ...

    @domain.task
    async def parent(ctx: Context) -> None:
        await ctx.spawn(child.prepare())

    @parent.finalize
    async def end() -> None:
        raise RuntimeError("at the end")

    scheduler = await taskmill_scheduler(domains=[domain])
    handle = await parent.submit()
    await scheduler.run_until_idle()
    error = await only_error(scheduler, handle.id)
    assert (error.kind, error.error) == ("failed", "RuntimeError: at the end")
    assert "in end" in (error.traceback or "")


async def test_twenty_five_failed_attempts_keep_the_last_twenty(path: Path) -> None:
    domain = Domain("d")

    @domain.task(retry=Retry.constant(24, 0))
    async def fail(ctx: Context) -> None:
        raise ValueError(str(ctx.attempt))

    async with Scheduler(path, domains=[domain]) as scheduler:
        handle = await fail.submit()
        await scheduler.run_until_idle()
        record = await handle.record()
    assert [each.attempt for each in record.errors] == list(range(6, 26))
    assert [each.error for each in record.errors] == [f"ValueError: {number}" for number in range(6, 26)]
    assert stored_errors(path) == 20


async def test_a_task_that_succeeds_at_once_or_is_stopped_leaves_no_error(path: Path) -> None:
    domain = Domain("d")
    running = asyncio.Event()

    @domain.task
    async def succeed() -> None: ...

    @domain.task
    async def wait() -> None:
        running.set()
        await asyncio.Event().wait()

    async with Scheduler(path, domains=[domain]) as scheduler:
        await scheduler.submit_many([succeed.prepare() for _ in range(100)])
        await scheduler.run_until_idle()
        stopped = await wait.submit()
        async with scheduler.running():
            await running.wait()
            await scheduler.cancel(stopped.id)
            await stopped.wait()
        assert (await stopped.record()).errors == ()
        assert await scheduler.error_groups() == []
    assert stored_errors(path) == 0


async def test_a_task_that_succeeds_in_the_end_still_shows_its_errors(taskmill_scheduler: SchedulerFactory) -> None:
    domain = Domain("d")

    @domain.task
    async def second_time(ctx: Context) -> str:
        if ctx.attempt == 1:
            raise ValueError("not yet")
        return "done"

    scheduler = await taskmill_scheduler(domains=[domain])
    handle = await second_time.submit()
    await scheduler.run_until_idle()
    assert (await handle.record()).state == "completed"
    assert (await only_error(scheduler, handle.id)).error == "ValueError: not yet"


async def test_every_verb_that_returns_records_shows_the_same_errors(taskmill_scheduler: SchedulerFactory) -> None:
    domain = Domain("d", retry=Retry.none())

    @domain.task(key="k")
    async def fail() -> None:
        raise ValueError("no")

    scheduler = await taskmill_scheduler(domains=[domain])
    handle = await fail.submit()
    await scheduler.run_until_idle()
    record = await scheduler.get(handle.id)
    assert len(record.errors) == 1
    assert await scheduler.find("d::fail", "k") == record
    assert await scheduler.history() == [record]
    assert await scheduler.dead_letters() == [record]
    assert (await scheduler.graph(handle.id)).tasks == {handle.id: record}
    assert await handle.wait() == record
    await scheduler.pause()
    await scheduler.retry_dead(handle.id)
    (active,) = await scheduler.tasks()
    assert active.errors == record.errors


async def test_a_revived_dead_letter_keeps_its_errors_and_a_replacement_starts_without(
    taskmill_scheduler: SchedulerFactory,
) -> None:
    domain = Domain("d", retry=Retry.constant(1, 3600))

    @domain.task(key="k")
    async def fail() -> None:
        raise ValueError("no")

    scheduler = await taskmill_scheduler(domains=[domain])
    handle = await fail.options(retry=Retry.none()).submit()
    await scheduler.run_until_idle()
    await scheduler.retry_dead(handle.id)
    await scheduler.run_until_idle()
    assert [each.attempt for each in (await scheduler.get(handle.id)).errors] == [1, 2]
    waiting = await fail.submit()
    await scheduler.run_until_idle()
    replacement = await fail.options(on_duplicate="supersede").submit()
    assert replacement.replaced_id == waiting.id
    assert (await replacement.record()).errors == ()
    assert len((await scheduler.get(waiting.id)).errors) == 1


async def test_pruning_history_deletes_the_errors_of_its_tasks(path: Path) -> None:
    async with Scheduler(path, domains=[work], retention=None) as scheduler:
        for _ in range(3):
            await failing.give_up.submit()
        await scheduler.run_until_idle()
        assert stored_errors(path) == 3
        assert await scheduler.prune(Retention(max_count=1)) == 2
        (kept,) = await scheduler.history()
        assert len(kept.errors) == 1
    assert stored_errors(path) == 1


async def test_errors_can_be_copied_pickled_and_written_as_json(taskmill_scheduler: SchedulerFactory) -> None:
    scheduler = await taskmill_scheduler(domains=[work])
    handle = await failing.on_loop.submit("no")
    await scheduler.run_until_idle()
    record = await handle.record()
    assert copy.deepcopy(record) == pickle.loads(pickle.dumps(record)) == record
    (document,) = msgspec.json.decode(to_json(record))["errors"]
    assert list(document) == ["attempt", "at", "kind", "error", "traceback", "node", "duration"]
    (group,) = await scheduler.error_groups()
    assert pickle.loads(pickle.dumps(group)) == group
    assert msgspec.json.decode(to_json(group))["sample_ids"] == [handle.id]


async def test_a_finalize_in_a_process_reads_the_errors_of_its_children(path: Path) -> None:
    from tests.runtime.errors import families

    async with Scheduler(path, domains=[families.domain]) as scheduler:
        handle = await families.parent.submit()
        await scheduler.run_until_idle()
        record = await handle.record()
    assert (record.state, record.errors) == ("completed", ())


async def test_last_error_of_an_ended_task_is_that_of_its_last_attempt() -> None:
    domain = Domain("last")

    @domain.task(retry=Retry.constant(1, 0))
    async def fails(ctx: Context) -> None:
        raise ValueError(f"attempt {ctx.attempt}")

    @domain.task
    async def gives_up() -> None:
        raise GiveUp("impossible")

    async with Scheduler(domains=[domain]) as scheduler:
        dead, failed = await fails.submit(), await gives_up.submit()
        await scheduler.run_until_idle()
        assert (await dead.record()).last_error == "ValueError: attempt 2"
        assert (await failed.record()).last_error == "impossible"
