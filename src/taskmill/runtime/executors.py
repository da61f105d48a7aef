"""The executors of a scheduler, and how they call the code of an attempt."""

from __future__ import annotations

from typing import NamedTuple

from taskmill.define.task import PartName
from taskmill.execute.in_threads import ThreadExecutor
from taskmill.execute.on_loop import LoopExecutor
from taskmill.execute.work import Ended, Executor, RunningHandler, Work
from taskmill.runtime.attempt import Attempt


class Executors(NamedTuple):
    """The executors of a scheduler. Exceptions of the task's own data or types pass through both ``start`` methods."""

    loop: LoopExecutor
    threads: ThreadExecutor
    processes: Executor | None
    """None if no task type asks for processes: most programs never load that code."""

    def start(self, attempt: Attempt, part: PartName, ended: Ended) -> RunningHandler:
        """Call the handler or the ``finalize`` of an attempt."""
        task, type = attempt.task, attempt.type
        args, kwargs = type.handler.signature.decode(task.payload)
        work = Work(
            type.handler,
            part,
            task.id,
            task.attempt,
            task.payload,
            args,
            kwargs,
            attempt.record,
            attempt.context,
            attempt,
            task.saved,
            task.replaced,
            attempt.children,
        )
        if self.processes is not None and type.in_process:
            return self.processes.start(work, ended)
        executor = self.loop if type.handler.part(part).is_async else self.threads
        return executor.start(work, ended)

    def start_hook(self, attempt: Attempt, ended: Ended) -> RunningHandler:
        """Call the ``on_cancel`` hook of an attempt, always in this process. Its result is ignored."""
        hook = attempt.type.handler.on_cancel
        assert hook is not None  # noqa: S101 - only called for types that have one
        args, kwargs = attempt.type.handler.signature.decode(attempt.task.payload)
        arguments = [attempt.context(), *args] if hook.wants_context else args
        if hook.is_async:
            coroutine = hook.function(*arguments, **kwargs)
            return self.loop.call(coroutine, f"{attempt.task.type}.on_cancel", _log_later, ended)
        return self.threads.call(lambda: hook.function(*arguments, **kwargs) and None, _log_later, ended)

    async def close(self) -> None:
        for executor in self:
            if executor is not None:
                await executor.close()


def _log_later(_wrong: BaseException) -> None:
    """Log nothing: the exception of a hook is logged when the hook has ended."""
