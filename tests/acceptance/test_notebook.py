"""taskmill in a real notebook kernel, whose event loop also runs between the cells."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.acceptance.test_docs import run_notebook

pytestmark = pytest.mark.one_engine("the notebook has its own process and its own file")

CELLS = [
    "from taskmill import Domain, Scheduler\nnumbers = Domain('numbers')\n",
    "@numbers.task\nasync def double(n: int) -> int:\n    return 2 * n\n",
    "@numbers.task\ndef quadruple(n: int) -> int:\n    return 2 * double.submit_sync(n).result()\n",
    "scheduler = Scheduler('tasks.db', domains=[numbers])\nawait scheduler.open()\n",
    "import asyncio\nrunning = asyncio.create_task(scheduler.run())\n",
    "handle = await quadruple.submit(3)\nawait handle.result(timeout=20)\n",
    "try:\n    double.submit_sync(1)\nexcept Exception as wrong:\n    print(type(wrong).__name__)\n",
    "await scheduler.stop()\nawait running\nawait scheduler.close()\n",
]


def test_cells_define_open_submit_and_wait(tmp_path: Path) -> None:
    outputs = run_notebook(CELLS, tmp_path)
    assert outputs[5][0]["data"]["text/plain"] == "12"
    assert outputs[6][0]["text"] == "InvalidState\n"
    assert [len(output) for output in outputs] == [0, 0, 0, 0, 0, 1, 1, 0]


def test_a_cell_that_defines_a_task_again_replaces_it_while_the_scheduler_is_open(tmp_path: Path) -> None:
    """The kernel and the scheduler stay; tasks that were stored before the cell ran again use the newer function."""
    define = "@numbers.task(priority={priority})\ndef scale(n: int) -> int:\n    return {factor} * n\n"
    submit = "handle = await scale.submit(3)\n(await handle.record()).priority, await handle.result(timeout=20)\n"
    cells = [
        "import asyncio\nfrom taskmill import Domain, Scheduler\nnumbers = Domain('numbers')\n",
        define.format(priority=64, factor=2),
        "scheduler = Scheduler('tasks.db', domains=[numbers])\nawait scheduler.open()\n",
        "earlier = await scale.submit(1)\n",
        define.format(priority=32, factor=10),
        "running = asyncio.create_task(scheduler.run())\nawait earlier.result(timeout=20)\n",
        submit,
        define.format(priority=32, factor=10),  # the same cell once more
        define.format(priority=16, factor=100),  # while the scheduler runs
        submit,
        f"numbers = Domain('numbers')\n{define.format(priority=16, factor=2)}",
        "try:\n    await scale.submit(1)\nexcept Exception as wrong:\n    print(type(wrong).__name__)\n",
        "await scheduler.stop()\nawait running\nawait scheduler.close()\n",
    ]
    outputs = run_notebook(cells, tmp_path)
    assert outputs[11][0]["text"] == "ConfigError\n", "the scheduler does not know a second domain"
    assert [number for number, output in enumerate(outputs) if output] == [5, 6, 9, 11]
    shown = [outputs[number][0]["data"]["text/plain"] for number in (5, 6, 9)]
    assert shown == ["10", "(32, 30)", "(16, 300)"]
