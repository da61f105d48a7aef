"""Handlers that worker processes import by name, and that return which task they run for."""

from __future__ import annotations

import logging
import os
import threading
from typing import Any

import taskmill
from taskmill import Context, Domain, GiveUp, Retry, RetryLater, Submission, TaskLogFilter

work = Domain("work", retry=Retry.none())


def fields_logged() -> list[Any]:
    """Log something through a filter and return the fields that the record has."""
    seen: list[Any] = []
    handler = logging.Handler()
    handler.emit = lambda record: seen.extend(  # type: ignore[method-assign]
        getattr(record, name) for name in ("task_id", "task_type", "attempt", "group")
    )
    handler.addFilter(TaskLogFilter())
    logger = logging.getLogger("tests.around")
    logger.addHandler(handler)
    logger.propagate = False
    try:
        logger.error("something happens")
    finally:
        logger.removeHandler(handler)
        logger.propagate = True
    return seen


def told() -> dict[str, Any]:
    """Return what ``current_task()`` and the log filter say about the running task."""
    record = taskmill.current_task()
    assert record is not None
    return {
        "id": record.id,
        "type": record.type,
        "payload": dict(record.payload),
        "attempt": record.attempt,
        "logged": fields_logged(),
    }


@work.task(run_in="process", group="g")
def in_process(n: int) -> dict[str, Any]:
    return told()


@work.task(run_in="process", group="g")
async def async_in_process(n: int) -> dict[str, Any]:
    return told()


@work.task(group="g")
async def on_loop(n: int) -> dict[str, Any]:
    return told()


@work.task(group="g")
def in_thread(n: int) -> dict[str, Any]:
    return told()


@work.task(run_in="process")
def parent_in_process(ctx: Context) -> None:
    ctx.spawn(Submission("work::on_loop", {"n": 2}))


@parent_in_process.finalize
def finalize_in_process(ctx: Context) -> dict[str, Any]:
    return told()


@work.task(group="g")
async def fail_on_loop() -> None:
    raise ValueError("bad")


@work.task(group="g")
def fail_in_thread() -> None:
    raise ValueError("bad")


@work.task(run_in="process", group="g")
def fail_in_process() -> None:
    raise ValueError("bad")


class Unreadable(Exception):
    def __str__(self) -> str:
        raise ZeroDivisionError


@work.task
async def unreadable_on_loop() -> None:
    raise Unreadable


@work.task
def unreadable_in_thread() -> None:
    raise Unreadable


@work.task(run_in="process")
def unreadable_in_process() -> None:
    raise Unreadable


class OwnError(Exception): ...


@work.task(run_in="process")
def fail(how: str) -> None:
    match how:
        case "give up":
            raise GiveUp("no more")
        case "later":
            raise RetryLater("not now", after=5)
        case "key":
            raise KeyError("missing")
        case "text":
            b"\xff".decode()
        case "stop":
            raise StopIteration("over")
        case "own":
            raise OwnError("mine")
        case _:
            raise ValueError(how)


@work.task(run_in="process")
def saved_before(ctx: Context) -> dict[str, Any]:
    return dict(ctx.saved)


@work.task(run_in="process", timeout=0.2)
def endless() -> None:
    threading.Event().wait()


@work.task(run_in="process")
def die() -> None:
    os._exit(1)
