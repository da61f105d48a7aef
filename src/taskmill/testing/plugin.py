"""The pytest plugin that ships with taskmill.

Fixtures: ``manual_clock``, and ``taskmill_scheduler``, a factory for open schedulers in memory on that clock::

    async def test_upload(taskmill_scheduler, manual_clock):
        scheduler = await taskmill_scheduler(domains=[sync])
        await upload.submit("a.jpg")
        scheduler.assert_submitted(upload, path="a.jpg")
        await scheduler.run_until_idle()

With ``inline=True`` every submission runs to its end before ``submit`` returns; with ``inline="raise"`` it also raises
the exception of the handler.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal

import pytest

from taskmill.testing import ObservedScheduler
from taskmill.testing.clock import ManualClock

if TYPE_CHECKING or find_spec("pytest_asyncio") is not None:
    from pytest_asyncio import fixture as async_fixture
else:
    # Another plugin may run asynchronous tests; it then accepts ordinary fixtures.
    async_fixture = pytest.fixture

SchedulerFactory = Callable[..., Awaitable[ObservedScheduler]]


@pytest.fixture
def manual_clock() -> ManualClock:
    """A clock that moves only when the test moves it."""
    return ManualClock()


@async_fixture
async def taskmill_scheduler(manual_clock: ManualClock) -> AsyncIterator[SchedulerFactory]:
    """A factory for open schedulers in memory on ``manual_clock``; they are closed after the test."""
    async with AsyncExitStack() as stack:

        async def make(*, inline: bool | Literal["raise"] = False, **settings: Any) -> ObservedScheduler:
            settings.setdefault("clock", manual_clock)
            return await stack.enter_async_context(ObservedScheduler(inline=inline, **settings))

        yield make
