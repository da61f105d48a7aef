"""The executors of a scheduler, and how they call the code of an attempt."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from taskmill.core.logs import logger
from taskmill.define.middleware import Middleware
from taskmill.define.task import PartName
from taskmill.execute.in_threads import ThreadExecutor
from taskmill.execute.middleware import WithinMiddleware, start_async
from taskmill.execute.on_loop import LoopExecutor
from taskmill.execute.work import Ended, Executor, RunningHandler, Work
from taskmill.runtime.attempt import Attempt


class Executors:
    """The executors of a scheduler. Exceptions that the task's own data or types raise pass both ``start`` methods."""

    def __init__(
        self,
        loop: LoopExecutor,
        threads: ThreadExecutor,
        make_processes: Callable[[], Executor],
        middleware: Sequence[Middleware] = (),
    ) -> None:
        self.loop = loop
        self.threads = threads
        self._make_processes = make_processes
        self._processes: Executor | None = None
        """None until the first handler runs in a process. A type may be redefined to do so at any time."""
        self.middleware = middleware

    def start(self, attempt: Attempt, part: PartName, ended: Ended) -> RunningHandler:
        """Call the handler or the ``finalize`` of an attempt."""
        task, type = attempt.task, attempt.type
        code, signature = type.handler.part(part), type.handler.signature
        args, kwargs = signature.decode(task.payload)
        if signature.ignored and not signature.ignored_is_reported:
            signature.ignored_is_reported = True
            gone = ", ".join(map(repr, signature.ignored))
            logger.warning("%s: stored tasks have %s, which the handler no longer takes; ignored", task.type, gone)
        is_on_loop = code.is_async and not type.in_process
        if is_on_loop and not self.middleware:
            arguments = [attempt.context(), *args] if code.wants_context else args
            return self.loop.call(code.function(*arguments, **kwargs), type.handler.name, attempt, ended)
        work = Work(
            type.handler,
            part,
            code,
            task.id,
            task.attempt,
            task.payload,
            args,
            kwargs,
            attempt,
            attempt.context,
            attempt,
            task.saved,
            task.replaced,
            attempt.children,
        )
        if self.middleware:
            # One Context for the middleware and the handler: both see what the other has saved.
            context = attempt.context()
            work.context = lambda: context
        if is_on_loop:
            return start_async(self.middleware, work, self.loop, ended)
        executor: Executor = self.threads
        if type.in_process:
            executor = self._processes = self._processes or self._make_processes()
        if self.middleware:
            return WithinMiddleware(self.middleware, work, executor, self.loop, ended)
        return executor.start(work, ended)

    def start_hook(self, attempt: Attempt, ended: Ended) -> RunningHandler:
        """Call the ``on_cancel`` hook of an attempt, always in this process. Its result is ignored."""
        hook = attempt.type.handler.on_cancel
        assert hook is not None  # noqa: S101 - only called for types that have one
        args, kwargs = attempt.type.handler.signature.decode(attempt.task.payload)
        arguments = [attempt.context(), *args] if hook.wants_context else args
        if hook.is_async:
            coroutine = hook.function(*arguments, **kwargs)
            return self.loop.call(coroutine, f"{attempt.task.type}.on_cancel", attempt, ended, is_logged=False)
        return self.threads.call(lambda: hook.function(*arguments, **kwargs) and None, attempt, _log_later, ended)

    async def close(self) -> None:
        for executor in (self.loop, self.threads, self._processes):
            if executor is not None:
                await executor.close()


def _log_later(_wrong: BaseException) -> None:
    """Log nothing: the exception of a hook is logged when the hook has ended."""
