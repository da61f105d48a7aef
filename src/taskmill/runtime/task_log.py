"""The log of tasks: one INFO line when an attempt starts, and one when it ends, on the logger ``taskmill.task``.

The fields of the task are attributes of the log record, and so is what the line says about the end: ``outcome``,
``duration`` in seconds, ``retries`` and ``error``. A task that ends without an attempt, because it expired or was
cancelled while it waited, has a line too; its ``attempt`` is ``None``. Nothing is formatted while INFO is off.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from taskmill.core.logs import about, task_logger
from taskmill.model.attempt import End, MakeWay, Return, TryAgain, Wait
from taskmill.model.status import Ending
from taskmill.model.task import Claimed, Described
from taskmill.model.turn import Judged, TurnResult

_is_enabled = task_logger.logger.isEnabledFor


def is_on() -> bool:
    """True if the program wants to see the lines of tasks."""
    return _is_enabled(logging.INFO)


def log_start(task: Claimed) -> None:
    part = " with finalize" if task.finalizes else ""
    task_logger.info(
        "task %d (%s) attempt %d starts%s", task.id, task.type, task.attempt, part, extra=_about(task, task.attempt)
    )


def log_attempts(verdicts: Sequence[Judged], result: TurnResult) -> None:
    """Log the ends of attempts, whose verdicts are committed."""
    for judged in verdicts:
        task, retries = judged.task, judged.task.retries
        error: str | None = None
        then = ""
        match judged.verdict:
            case End() | MakeWay() if task.id in result.waiting:
                outcome, how = "waiting", "waits for its children"
            case Wait():
                outcome, how = "waiting", "waits for its children"
            case End(ending, _, error):
                outcome, how = str(ending), _how(ending)
                then = f" and {retries} {'retry' if retries == 1 else 'retries'}" if retries else ""
            case TryAgain(error, due_at):
                retries += 1
                delay = 0.0 if due_at is None else max(0, due_at - result.now) / 1000
                outcome, how, then = "retry", "failed", f", retry {retries} in {delay:g} s"
            case MakeWay():
                outcome, how = "preempted", "was preempted"
            case Return(error=error):
                outcome, how = "returned", "returns to the queue"
        how = f"attempt {task.attempt} {how} after {judged.duration_ms / 1000:g} s{then}"
        _log_end(task, task.attempt, outcome, how, judged.duration_ms, retries, error)


def log_ended(task: Described | Claimed, end: End, duration_ms: int | None) -> None:
    """Log the end of a task that did not end with an attempt."""
    _log_end(task, None, str(end.ending), _how(end.ending), duration_ms, None, end.error)


def _how(ending: Ending) -> str:
    return "completed" if ending is Ending.COMPLETED else f"ended as {ending}"


def _log_end(
    task: Claimed | Described,
    attempt: int | None,
    outcome: str,
    how: str,
    duration_ms: int | None,
    retries: int | None,
    error: str | None,
) -> None:
    details = {
        "outcome": outcome,
        "duration": None if duration_ms is None else duration_ms / 1000,
        "retries": retries,
        "error": error,
    }
    why = "" if error is None else f": {error}"
    task_logger.info("task %d (%s) %s%s", task.id, task.type, how, why, extra=_about(task, attempt) | details)


def _about(task: Claimed | Described, attempt: int | None) -> dict[str, object]:
    return about(task) | {"attempt": attempt}
