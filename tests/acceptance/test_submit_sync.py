"""Submitting from threads: ``submit_sync`` blocks and stores; a ``submit`` that nothing awaits is reported."""

from __future__ import annotations

import asyncio
import gc
import inspect
import threading
import warnings
from pathlib import Path
from typing import Any

import pytest

from taskmill import ConfigError, Domain, InvalidState, Scheduler, blocking
from taskmill.define import worker_process

numbers = Domain("numbers")


@numbers.task
def double(n: int) -> int:
    return 2 * n


@numbers.task
def quadruple(n: int) -> int:
    return 2 * double.submit_sync(n).result()


@numbers.task
async def tries_to_block(n: int) -> str:
    try:
        double.submit_sync(n)
    except InvalidState as wrong:
        return str(wrong)
    return "it blocked"


@numbers.task
def forgets(n: int) -> None:
    double.submit(n)  # type: ignore[unused-coroutine]


async def test_a_def_handler_submits_and_waits(tmp_path: Path) -> None:
    async with Scheduler(tmp_path / "tasks.db", domains=[numbers]) as scheduler, scheduler.running():
        handle = await quadruple.submit(3)
        assert await handle.result(timeout=20) == 12


async def test_any_thread_may_submit_and_use_the_handle(tmp_path: Path) -> None:
    async with Scheduler(tmp_path / "tasks.db", domains=[numbers]) as scheduler, scheduler.running():

        def in_a_thread() -> tuple[type, int, str]:
            handle = double.options(label="from a thread").submit_sync(4)
            result = handle.result(timeout=20)
            return type(handle), result, str(handle.record().label)

        assert await asyncio.to_thread(in_a_thread) == (blocking.Handle, 8, "from a thread")


async def test_on_the_event_loops_own_thread_it_is_refused_with_what_to_do(tmp_path: Path) -> None:
    async with Scheduler(tmp_path / "tasks.db", domains=[numbers]) as scheduler:
        with pytest.raises(InvalidState, match=r"await double\.submit\(\.\.\.\)"):
            double.submit_sync(1)
        handle = await tries_to_block.submit(1)
        await scheduler.run_until_idle(timeout=20)
        assert "`await double.submit(...)`" in await handle.result()
        assert await scheduler.count() == 0


def test_it_needs_no_event_loop_in_the_program(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no open scheduler; submit inside `with taskmill\.blocking\.Scheduler\("):
        double.submit_sync(1)
    with blocking.Scheduler(tmp_path / "tasks.db", domains=[numbers]) as scheduler, scheduler.running():
        assert double.submit_sync(21).result(timeout=20) == 42


def test_of_two_schedulers_the_innermost_with_block_counts(tmp_path: Path) -> None:
    outer, inner = (blocking.Scheduler(tmp_path / name, domains=[numbers]) for name in ("a.db", "b.db"))
    with outer, inner:
        double.submit_sync(1)
        assert (outer.count(), inner.count()) == (0, 1)


async def test_wrong_arguments_are_refused_as_ever(tmp_path: Path) -> None:
    async with Scheduler(tmp_path / "tasks.db", domains=[numbers]):
        with pytest.raises(ValueError, match="n"):
            await asyncio.to_thread(double.submit_sync, "not a number")  # type: ignore[arg-type]


async def test_a_submit_that_a_def_handler_does_not_await_is_reported(tmp_path: Path) -> None:
    with warnings.catch_warnings(record=True) as reported:
        warnings.simplefilter("default")
        async with Scheduler(tmp_path / "tasks.db", domains=[numbers]) as scheduler:
            await scheduler.submit_many([forgets.prepare(n) for n in range(3)])
            await scheduler.run_until_idle(timeout=20)
            gc.collect()
            assert await scheduler.count(type="numbers::double") == 0
    (warning,) = reported
    assert warning.category is RuntimeWarning
    assert warning.filename == __file__
    assert "double.submit(n)" in Path(__file__).read_text().splitlines()[warning.lineno - 1]
    assert "numbers::double.submit(...) was never awaited" in str(warning.message)
    assert "submit_sync" in str(warning.message)


@pytest.mark.one_engine("no store is opened")
def test_in_a_worker_process_the_report_advises_to_spawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_process, "is_worker", True)
    with pytest.warns(
        RuntimeWarning, match=r"numbers::double\.submit\(\.\.\.\) was never awaited.*ctx\.spawn"
    ) as reported:
        forgets(1)
    assert "submit_sync" not in str(reported[0].message)


async def test_a_coroutine_made_outside_the_loop_can_be_awaited_on_it(tmp_path: Path) -> None:
    async with Scheduler(tmp_path / "tasks.db", domains=[numbers]) as scheduler:
        made: list[Any] = []

        def make() -> None:
            made.extend(double.submit(n) for n in range(3))

        maker = threading.Thread(target=make)
        maker.start()
        maker.join()
        first, second, third = made
        await first
        await asyncio.get_running_loop().create_task(second)
        third.close()
        assert await scheduler.count() == 2


@pytest.mark.one_engine("no store is opened")
def test_frameworks_see_that_submit_is_to_be_awaited() -> None:
    is_async = asyncio.iscoroutinefunction(double.submit) or inspect.iscoroutinefunction(double.submit)
    assert is_async
