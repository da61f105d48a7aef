"""A script with a scheduler and a handler for processes in the same file works."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

import pytest

from taskmill import Domain, Retry, Scheduler
from taskmill.define import worker_process
from taskmill.errors import InvalidState
from tests.runtime.processes import handlers
from tests.runtime.processes.test_finding_handlers import run_script

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="worker processes need POSIX"),
    pytest.mark.one_engine("the store plays no part in how a worker loads a script"),
]

SCRIPT = """
    import asyncio
    from taskmill import Domain, Scheduler, TaskFailed, blocking

    numbers = Domain("numbers")

    @numbers.task(run_in="process")
    def triple(n: int) -> int:
        return 3 * n

    scheduler = Scheduler(domains=[numbers])
    other = blocking.Scheduler("other.db", domains=[numbers])

    async def main() -> None:
        async with scheduler:
            handle = await triple.submit(14)
            await scheduler.run_until_idle()
            try:
                print(await handle.result())
            except TaskFailed as wrong:
                print(wrong.record.ending, wrong.record.attempt, wrong)
"""


async def test_a_scheduler_of_the_module_is_harmless_in_a_worker(tmp_path: Path) -> None:
    said = await run_script(tmp_path / "script.py", SCRIPT + '\n    if __name__ == "__main__": asyncio.run(main())\n')
    assert said == "42\n"


@pytest.mark.parametrize("opening", ["asyncio.run(main())", "other.open(); asyncio.run(main())"])
async def test_opening_a_scheduler_in_a_worker_ends_the_task_at_once_and_says_why(tmp_path: Path, opening: str) -> None:
    said = await run_script(tmp_path / "script.py", textwrap.dedent(SCRIPT) + f"\n{opening}\n")
    (result,) = [line for line in said.splitlines() if line.startswith("dead_letter")]
    assert result.startswith("dead_letter 1 task 1 (numbers::triple)")
    assert "InvalidState: a scheduler cannot be opened in a worker process" in result
    assert 'if __name__ == "__main__":' in result


async def test_a_handler_that_a_worker_cannot_import_ends_the_task_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "only_once.py").write_text(
        "import os, taskmill\n"
        "domain = taskmill.Domain('once')\n"
        "@domain.task(run_in='process')\n"
        "def work() -> None: ...\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    import only_once  # type: ignore[import-not-found]

    (tmp_path / "only_once.py").write_text("import surely_not_there\n")
    async with Scheduler(domains=[only_once.domain], retry=Retry.constant(5, 0)) as scheduler:
        handle = await only_once.work.submit()
        await scheduler.run_until_idle(timeout=60)
        record = await handle.wait()
    assert (record.ending, record.attempt) == ("dead_letter", 1)
    assert record.error is not None
    assert "cannot import work: ModuleNotFoundError: No module named 'surely_not_there'" in record.error


async def test_a_setting_that_a_worker_cannot_have_ends_the_task_at_once() -> None:
    async with Scheduler(domains=[handlers.work], retry=Retry.constant(5, 0)) as scheduler:
        handle = await handlers.needs_state.submit()
        await scheduler.run_until_idle(timeout=60)
        record = await handle.wait()
    assert (record.ending, record.attempt) == ("dead_letter", 1)
    assert "lives in the scheduler's process" in str(record.error)


async def test_a_task_cannot_be_submitted_from_a_worker_and_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    domain = Domain("numbers")

    @domain.task
    def double(n: int) -> int:
        return 2 * n

    monkeypatch.setattr(worker_process, "is_worker", True)
    with pytest.raises(InvalidState, match=r"a worker process has none; .* ctx\.spawn"):
        double.submit_sync(1)
