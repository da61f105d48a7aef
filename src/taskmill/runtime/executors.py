"""Where handlers run: on the loop, in threads, in processes."""

from __future__ import annotations

from typing import NamedTuple

from taskmill.define.registry import RegisteredType
from taskmill.define.task import PartName
from taskmill.execute.in_threads import ThreadExecutor
from taskmill.execute.on_loop import LoopExecutor
from taskmill.execute.work import Executor


class Executors(NamedTuple):
    """Where handlers can run."""

    loop: LoopExecutor
    threads: ThreadExecutor
    processes: Executor | None
    """Only where a task type asks for it: most programs need none of its machinery."""

    def choose(self, type: RegisteredType, part: PartName) -> Executor:
        if self.processes is not None and type.in_process:
            return self.processes
        return self.loop if type.handler.part(part).is_async else self.threads

    async def close(self) -> None:
        for executor in self:
            if executor is not None:
                await executor.close()
