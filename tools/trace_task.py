"""Count what one plain task passes through, from ``submit`` to its listener: functions, files and value types.

    python tools/trace_task.py [--list]

A scheduler is opened and warmed up on a temporary SQLite file. Then one task is submitted, runs and completes, and a
listener is notified. Every function of taskmill that is called meanwhile counts once, in any thread. So does every type
of ``taskmill.model`` or ``taskmill.core.ports`` that is passed to or returned by one of them.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import taskmill
from taskmill import Domain, Scheduler
from taskmill.events import TaskCompleted

PACKAGE = str(Path(taskmill.__file__).parent)

domain = Domain("traced")


@domain.task
async def add(one: int, two: int) -> int:
    return one + two


class Trace:
    """The functions and types that were called or passed since it started."""

    def __init__(self) -> None:
        self.functions: set[CodeType] = set()
        self.values: Counter[str] = Counter()
        self._is_on = False

    def watch_threads(self) -> None:
        """Watch this thread, and every thread that starts from now on."""
        threading.setprofile(self._note)
        sys.setprofile(self._note)

    def start(self) -> None:
        self._is_on = True

    def stop(self) -> None:
        self._is_on = False
        sys.setprofile(None)
        threading.setprofile(None)

    def _note(self, frame: FrameType, event: str, value: Any) -> None:
        code = frame.f_code
        if not self._is_on or event not in ("call", "return") or not code.co_filename.startswith(PACKAGE):
            return
        if event == "return":
            self._note_value(value)
            return
        self.functions.add(code)
        for name in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]:
            self._note_value(frame.f_locals.get(name))

    def _note_value(self, value: object) -> None:
        if isinstance(value, list | tuple) and type(value) in (list, tuple):
            for each in value[:2]:
                self._note_value(each)
        elif type(value).__module__.startswith(("taskmill.model", "taskmill.core.ports")):
            self.values[type(value).__name__] += 1

    @property
    def files(self) -> set[str]:
        return {str(Path(code.co_filename).relative_to(PACKAGE)) for code in self.functions}


async def traced() -> Trace:
    trace = Trace()
    with tempfile.TemporaryDirectory() as folder:
        trace.watch_threads()
        async with Scheduler(Path(folder) / "tasks.db", domains=[domain]) as scheduler, scheduler.running():
            listener = scheduler.events(TaskCompleted)
            await add.submit(1, 2)
            await anext(listener)
            trace.start()
            await add.submit(3, 4)
            await anext(listener)
            trace.stop()
    return trace


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--list", action="store_true", help="name everything that was counted")
    arguments = parser.parse_args()
    trace = asyncio.run(traced())
    print(f"{len(trace.functions)} functions in {len(trace.files)} files, {len(trace.values)} value types")
    if arguments.list:
        for file in sorted(trace.files):
            named = sorted(code.co_qualname for code in trace.functions if code.co_filename.endswith(file))
            print(f"{file}: {', '.join(named)}")
        print("values:", ", ".join(sorted(trace.values)))


if __name__ == "__main__":
    main()
