"""The scheduler for programs without an event loop: the same settings, ``open`` and ``close``, and the same errors."""

from __future__ import annotations

import inspect
import threading
from pathlib import Path
from typing import Any

import pytest

from taskmill import (
    AlreadyRunning,
    ConfigError,
    Domain,
    DuplicateTask,
    InvalidState,
    Retry,
    Scheduler,
    SchedulerSettings,
    StoreError,
    SubmissionError,
    Task,
    TaskFailed,
    TaskmillError,
    TaskNotFound,
    blocking,
)


def numbers() -> tuple[Domain, Task[[int], int]]:
    domain = Domain("numbers")

    @domain.task(key=True, on_duplicate="reject")
    def double(n: int) -> int:
        if n < 0:
            raise ValueError(f"{n} is negative")
        return 2 * n

    return domain, double


async def _is_waited_for(scheduler: Scheduler) -> bool:
    return bool(scheduler._waiters.ids)


@pytest.mark.one_engine("no store is opened")
def test_the_settings_as_a_type_are_the_parameters_of_a_scheduler() -> None:
    parameters = dict(inspect.signature(Scheduler.__init__).parameters)
    del parameters["self"], parameters["store"]
    described = {name: hint.__forward_arg__ for name, hint in SchedulerSettings.__annotations__.items()}
    assert described == {name: each.annotation for name, each in parameters.items()}
    assert list(described) == list(parameters)
    assert not SchedulerSettings.__required_keys__


@pytest.mark.one_engine("no store is opened")
def test_a_blocking_scheduler_has_the_signature_of_the_other() -> None:
    assert inspect.signature(blocking.Scheduler) == inspect.signature(Scheduler)


@pytest.mark.one_engine("no store is opened")
def test_it_refuses_wrong_settings_as_the_other_does() -> None:
    make: Any = blocking.Scheduler
    with pytest.raises(ConfigError, match="did you mean max_concurrency"):
        make(max_concurency=2)
    with pytest.raises(ConfigError, match="positional"):
        make(":memory:", [])
    with pytest.raises(ConfigError, match="max_concurrency"):
        blocking.Scheduler(max_concurrency=0)


def test_it_opens_and_closes_without_a_with_block(tmp_path: Path) -> None:
    domain, double = numbers()
    settings: SchedulerSettings = {"domains": [domain], "max_concurrency": 2}
    scheduler = blocking.Scheduler(tmp_path / "tasks.db", **settings)
    scheduler.close()
    for n in (3, 4):
        scheduler.open()
        with pytest.raises(InvalidState, match="already open"):
            scheduler.open()
        handle = scheduler.submit(double.prepare(n))
        scheduler.run_until_idle(timeout=20)
        assert handle.result(timeout=20) == 2 * n
        scheduler.close()
        scheduler.close()
        with pytest.raises(InvalidState, match=r"open\(\)"):
            handle.record()
    assert "taskmill-blocking" not in {thread.name for thread in threading.enumerate()}


@pytest.mark.one_engine("a file has one dispatcher, a database has many")
def test_running_on_standby_takes_over(tmp_path: Path) -> None:
    domain, double = numbers()
    first, second = (blocking.Scheduler(tmp_path / "tasks.db", domains=[domain]) for _ in range(2))
    with first, second:
        with first.running():
            with pytest.raises(AlreadyRunning), second.running():
                raise AssertionError("two schedulers dispatch")
            standby = second.running(standby=True)
            standby.__enter__()
            assert not second.is_dispatching
        task = second.submit(double.prepare(5))
        assert task.result(timeout=20) == 10
        assert second.is_dispatching
        standby.__exit__(None, None, None)


def test_it_raises_the_errors_of_the_other(tmp_path: Path) -> None:
    domain, double = numbers()
    with blocking.Scheduler(tmp_path / "tasks.db", domains=[domain], retry=Retry.none()) as scheduler:
        first = scheduler.submit(double.prepare(1))
        with pytest.raises(DuplicateTask) as duplicate:
            scheduler.submit(double.prepare(1))
        assert duplicate.value.existing_id == first.id
        with pytest.raises(TaskNotFound):
            scheduler.get(10**6)
        with pytest.raises(TimeoutError) as late:
            first.result(timeout=0)
        assert isinstance(late.value, TaskmillError)
        wrong: Any = 5
        for verb in (scheduler.submit_many, scheduler.dry_run):
            with pytest.raises(SubmissionError, match="submissions must be"):
                verb(wrong)
        failing = scheduler.submit(double.prepare(-1))
        scheduler.run_until_idle(timeout=20)
        with pytest.raises(TaskFailed, match="-1 is negative") as failed:
            failing.result(timeout=20)
        assert failed.value.record.id == failing.id


def test_a_call_that_waits_while_the_scheduler_closes_raises_an_error(tmp_path: Path) -> None:
    domain, double = numbers()
    scheduler = blocking.Scheduler(tmp_path / "tasks.db", domains=[domain])
    scheduler.open()
    handle = scheduler.submit(double.prepare(1))
    raised: list[BaseException] = []

    def wait() -> None:
        try:
            handle.result()
        except BaseException as wrong:
            raised.append(wrong)

    waiting = threading.Thread(target=wait)
    waiting.start()
    while not scheduler.call(_is_waited_for(scheduler._scheduler)):
        continue
    scheduler.close()
    waiting.join(20)
    assert [type(wrong) for wrong in raised] == [InvalidState]


async def test_it_works_where_the_calling_thread_runs_an_event_loop_as_in_a_notebook_cell(tmp_path: Path) -> None:
    domain, double = numbers()
    with blocking.Scheduler(tmp_path / "tasks.db", domains=[domain]) as scheduler:
        handle = double.submit_sync(4)
        scheduler.run_until_idle(timeout=20)
        assert handle.result(timeout=20) == 8
    assert "taskmill-blocking" not in {thread.name for thread in threading.enumerate()}
    with pytest.raises(KeyError, match="mine"), blocking.Scheduler(tmp_path / "tasks.db"):
        raise KeyError("mine")


@pytest.mark.one_engine("the folder of a file is what is missing")
async def test_where_the_calling_thread_runs_an_event_loop_a_failed_open_raises_its_own_error(tmp_path: Path) -> None:
    scheduler = blocking.Scheduler(tmp_path / "missing" / "tasks.db")
    with pytest.raises(StoreError, match="missing"):
        scheduler.open()
