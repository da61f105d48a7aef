"""Answers that are cached for a short time, so that many pages cause as many reads of the store as one."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from taskmill.web.problems import RequestRefused

T = TypeVar("T")

MOST_KEPT = 256
READ_SECONDS = 10.0
"""How long an answer may take before the request ends with a 503."""


class ShortMemory(Generic[T]):
    """Caches answers by question. An answer is made once, however many requests wait for it."""

    def __init__(self) -> None:
        self._answers: OrderedDict[object, tuple[float, asyncio.Task[T]]] = OrderedDict()

    async def remembered(self, question: object, seconds: float, make: Callable[[], Awaitable[T]]) -> T:
        """Return the answer to a question, made at most once in ``seconds``; a failed one is made again."""
        now = asyncio.get_running_loop().time()
        found = self._answers.get(question)
        if found is None or now >= found[0] or _has_failed(found[1]):
            found = (now + seconds, asyncio.ensure_future(_made(make)))
            found[1].add_done_callback(_has_failed)
            self._answers[question] = found
            self._answers.move_to_end(question)
            while len(self._answers) > MOST_KEPT:
                self._answers.popitem(last=False)
        # A browser that leaves must not cancel the answer for the others.
        return await asyncio.shield(found[1])

    def forget(self) -> None:
        """Drop all answers, because something was changed. Answers that are being made are not kept either."""
        self._answers.clear()


async def _made(make: Callable[[], Awaitable[T]]) -> T:
    try:
        async with asyncio.timeout(READ_SECONDS):
            return await make()
    except TimeoutError:
        raise RequestRefused(
            503, "timeout", f"the store took longer than {READ_SECONDS:.0f} s; narrow the filters", {"retry-after": "5"}
        ) from None


def _has_failed(task: asyncio.Task[T]) -> bool:
    """True if there is no answer. Reading the error here keeps asyncio from logging it when every caller has left."""
    return task.done() and (task.cancelled() or task.exception() is not None)
