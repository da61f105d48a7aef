"""``on_cancel`` hooks: run after a cancelled attempt has ended, within a time limit, before the task ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from taskmill.execute.results import outcome_of_exception
from taskmill.execute.work import Running
from taskmill.exits import ends_program
from taskmill.model.outcome import Interrupted, RawOutcome, Succeeded
from taskmill.observe.log import about, logger
from taskmill.ports import Clock
from taskmill.runtime.attempt import Attempt
from taskmill.runtime.executors import Executors

FAREWELL = 1.0
"""Real seconds that a hook has to end by itself when its scheduler stops."""


class HookInterrupted(Exception):
    """The hook was cancelled by something else than its time limit; it has to run again."""


class Hooks:
    """Runs hooks. What they raise is logged and noted, and cancels nothing else."""

    def __init__(self, clock: Clock, executors: Executors, cancel_timeout: float) -> None:
        self._clock = clock
        self._executors = executors
        self._cancel_timeout = cancel_timeout
        self.at_work: set[Attempt] = set()
        """Attempts whose hook has not ended."""

    async def run(self, attempt: Attempt, ended: Callable[[], None]) -> str | None:
        """Run the hook of an attempt; return what was wrong with it, if anything was.

        ``ended`` is called when the hook is really over, which may be after its time limit.
        """
        over = asyncio.Event()
        outcome: list[RawOutcome] = []

        def hook_ended(raw: RawOutcome) -> None:
            outcome.append(raw)
            over.set()
            self.at_work.discard(attempt)
            ended()

        self.at_work.add(attempt)
        running = self._start(attempt, hook_ended)
        limit = self._limit(attempt)
        until = self._clock.monotonic() + limit
        try:
            while not over.is_set() and self._clock.monotonic() < until:
                await self._clock.wait(over, until)
        except asyncio.CancelledError:
            if running is not None:
                running.interrupt()
                asyncio.get_running_loop().call_later(FAREWELL, running.interrupt)
            raise
        if not outcome:
            if running is not None:
                running.interrupt()
            return _noted(attempt, f"on_cancel did not end within {limit:g} s")
        match outcome[0]:
            case Succeeded():
                return None
            case Interrupted(from_outside=True):
                raise HookInterrupted
            case raw:
                return _noted(attempt, f"on_cancel failed: {raw}")

    def _limit(self, attempt: Attempt) -> float:
        """Return the seconds that a hook may take: those of its task, if they are fewer than ``cancel_timeout``."""
        timeout_ms = attempt.timeout_ms
        return self._cancel_timeout if timeout_ms is None else min(self._cancel_timeout, timeout_ms / 1000)

    def _start(self, attempt: Attempt, ended: Callable[[RawOutcome], None]) -> Running | None:
        hook, type = attempt.type.handler.on_cancel, attempt.type
        assert hook is not None  # noqa: S101 - only called for types that have one
        try:
            args, kwargs = type.handler.signature.decode(attempt.task.payload)
            arguments = [attempt.context(), *args] if hook.wants_context else args
            if hook.is_async:
                coroutine = hook.function(*arguments, **kwargs)
                return self._executors.loop.call(coroutine, f"{attempt.task.type}.on_cancel", _say_nothing, ended)
            return self._executors.threads.call(
                lambda: hook.function(*arguments, **kwargs) and None, _say_nothing, ended
            )
        except BaseException as wrong:
            if ends_program(wrong):
                raise
            # The task's own data or types may raise anything.
            ended(outcome_of_exception(wrong))
            return None


def _say_nothing(_wrong: BaseException) -> None:
    """What a hook raises is logged when it is noted."""


def _noted(attempt: Attempt, problem: str) -> str:
    task = attempt.task
    logger.warning("task %d (%s): %s", task.id, task.type, problem, extra=about(task.id, task.type))
    return problem
