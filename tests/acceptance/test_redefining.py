"""A function that is defined again replaces itself: in a notebook cell, or when its module is reloaded."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

from taskmill import ConfigError, Domain, Scheduler, Submission

MODULE = """
from handlers_domain import domain

@domain.task(priority={priority})
async def work(n: int) -> int:
    return n * {factor}
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
