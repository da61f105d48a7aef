"""taskmill in a real notebook kernel, whose event loop runs between the cells too."""

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
