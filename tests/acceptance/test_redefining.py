"""A function that is defined again replaces itself: in a notebook cell, or when its module is reloaded."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from taskmill import ConfigError, Domain, RateLimit, Scheduler, Submission, blocking
from taskmill.testing import ManualClock

MODULE = """
from handlers_domain import domain

@domain.task(priority={priority})
async def work(n: int) -> int:
    return n * {factor}
"""


IN_PROCESS = """
import os
from handlers_domain import domain

@domain.task({options})
def work() -> int:
    return os.getpid()
"""


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    (tmp_path / "handlers_domain.py").write_text("from taskmill import Domain\ndomain = Domain('d')\n")
    for name in ("handlers_domain", "handlers_under_test"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


def _load(folder: Path, text: str) -> Any:
    (folder / "handlers_under_test.py").write_text(text)
    importlib.invalidate_caches()
    if "handlers_under_test" in sys.modules:
        return importlib.reload(sys.modules["handlers_under_test"])
    return importlib.import_module("handlers_under_test")


async def test_a_reloaded_module_replaces_its_functions_also_in_an_open_scheduler(modules: Path) -> None:
    first = _load(modules, MODULE.format(priority=5, factor=2))
    domain = importlib.import_module("handlers_domain").domain
    async with Scheduler(domains=[domain]) as scheduler:
        waiting = await first.work.submit(10)
        again = _load(modules, "\n\n" + MODULE.format(priority=7, factor=3))
        newer = await again.work.submit(10)
        assert (await newer.record()).priority == 7
        await scheduler.run_until_idle(timeout=10)
        assert [await waiting.result(), await newer.result()] == [30, 30]
    assert list(domain.types) == ["d::work"]
    async with Scheduler(domains=[domain]) as scheduler:
        handle = await scheduler.submit(Submission("d::work", {"n": 1}))
        await scheduler.run_until_idle(timeout=10)
        assert await handle.result() == 3


@pytest.mark.one_engine("no store is opened")
def test_a_module_that_is_reloaded_unchanged_replaces_its_functions(modules: Path) -> None:
    text = MODULE.format(priority=5, factor=2)
    first, domain = _load(modules, text).work, importlib.import_module("handlers_domain").domain
    assert _load(modules, text).work is not first
    assert domain.types["d::work"] is not first.type


@pytest.mark.one_engine("no store is opened")
def test_a_notebook_cell_may_run_again() -> None:
    notebook: dict[str, Any] = {"__name__": "__main__", "domain": Domain("d")}
    for factor in (2, 3):
        cell = f"@domain.task\nasync def work(n: int, factor: int = {factor}) -> int:\n    return n * factor\n"
        exec(compile(cell, f"<cell {factor}>", "exec"), notebook)
    assert notebook["domain"].types["d::work"].signature.defaults() == {"factor": 3}


@pytest.mark.one_engine("no store is opened")
def test_hooks_are_defined_again_with_their_function() -> None:
    domain = Domain("d")

    def define() -> Any:
        @domain.task
        async def work(n: int) -> None: ...

        @work.on_cancel
        async def clean(n: int) -> None: ...

        return work

    define()
    assert define().type.on_cancel is not None


@pytest.mark.one_engine("no store is opened")
@pytest.mark.parametrize("kind", ["on_cancel", "finalize"])
def test_a_cell_with_only_a_hook_may_run_again(kind: str) -> None:
    notebook: dict[str, Any] = {"__name__": "__main__", "domain": Domain("d"), "calls": []}
    exec("@domain.task\nasync def work(n: int) -> None: ...\n", notebook)
    for version in (1, 2):
        cell = f"@work.{kind}\ndef clean(n: int) -> None: calls.append({version})\n"
        exec(compile(cell, f"<cell {version}>", "exec"), notebook)
    getattr(notebook["work"].type, kind).function(0)
    assert notebook["calls"] == [2]
    with pytest.raises(ConfigError, match=f"d::work already has the {kind} hook clean"):
        exec(f"@work.{kind}\ndef tidy(n: int) -> None: ...\n", notebook)


@pytest.mark.one_engine("no store is opened")
def test_two_hooks_in_one_cell_are_refused() -> None:
    notebook: dict[str, Any] = {"__name__": "__main__", "domain": Domain("d")}
    hook = "@work.on_cancel\ndef clean(n: int) -> None: ...\n"
    with pytest.raises(ConfigError, match="d::work already has the on_cancel hook clean"):
        exec("@domain.task\nasync def work(n: int) -> None: ...\n" + 2 * hook, notebook)


@pytest.mark.one_engine("no store is opened")
def test_two_functions_of_one_name_are_refused() -> None:
    domain = Domain("d")

    @domain.task
    async def work() -> None: ...

    with pytest.raises(ConfigError, match="d::work is already registered"):

        @domain.task
        async def work() -> None: ...

    async def other() -> None: ...

    with pytest.raises(ConfigError, match="d::work is already registered"):
        domain.task(name="work")(other)


@pytest.mark.one_engine("no store is opened")
def test_two_functions_of_one_name_in_one_module_or_cell_are_refused(modules: Path) -> None:
    with pytest.raises(ConfigError, match="d::work is already registered"):
        _load(modules, MODULE.format(priority=5, factor=2) * 2)


async def test_a_function_that_is_defined_again_runs_where_its_new_definition_says(modules: Path) -> None:
    work = _load(modules, IN_PROCESS.format(options="")).work
    domain = importlib.import_module("handlers_domain").domain
    async with Scheduler(domains=[domain]) as scheduler, scheduler.running():
        assert await (await work.submit()).result(timeout=20) == os.getpid()
        again = _load(modules, IN_PROCESS.format(options="run_in='process'")).work
        assert await (await again.submit()).result(timeout=20) != os.getpid()
        once_more = _load(modules, IN_PROCESS.format(options="")).work
        assert await (await once_more.submit()).result(timeout=20) == os.getpid()


@pytest.mark.one_engine("no store is opened")
def test_a_definition_that_a_worker_process_cannot_import_is_refused_and_changes_nothing() -> None:
    domain = Domain("d")

    def define(**options: Any) -> Any:
        @domain.task(**options)
        def work() -> None: ...

        return work

    work = define()
    scheduler = Scheduler(domains=[domain])
    with pytest.raises(ConfigError, match='d::work: run_in="process" needs a function at the top level'):
        define(run_in="process")
    assert domain.types["d::work"] is work.type
    assert not next(iter(scheduler._registry)).in_process


async def test_a_task_that_is_defined_after_the_scheduler_was_opened_runs_and_is_published(tmp_path: Path) -> None:
    domain = Domain("d")
    path = tmp_path / "tasks.db"
    async with Scheduler(path, domains=[domain]) as scheduler, Scheduler(path) as other, scheduler.running():

        @domain.task(priority=7)
        async def late(n: int) -> int:
            return 2 * n

        assert await (await late.submit(1)).result(timeout=20) == 2
        by_name = await other.submit(Submission("d::late", {"n": 2}))
        assert (await by_name.wait(timeout=20)).priority == 7


async def test_the_rate_of_a_late_definition_applies(manual_clock: ManualClock) -> None:
    domain = Domain("d")

    def define(**options: Any) -> Any:
        @domain.task(**options)
        async def work() -> None: ...

        return work

    define()
    async with Scheduler(domains=[domain], clock=manual_clock) as scheduler, scheduler.running():
        work = define(rate=RateLimit(1, "1h"))
        await scheduler.submit_many([work.prepare() for _ in range(3)])
        await manual_clock.advance(1)
        assert await scheduler.count(status="completed") == 1
        assert [rate.name for rate in (await scheduler.snapshot()).rates] == ["d::work"]


def test_a_task_that_is_defined_in_another_thread_than_the_loop_runs(tmp_path: Path) -> None:
    domain = Domain("d")
    with blocking.Scheduler(tmp_path / "tasks.db", domains=[domain]) as scheduler, scheduler.running():

        @domain.task
        def late() -> str:
            return "done"

        assert late.submit_sync().result(timeout=20) == "done"
