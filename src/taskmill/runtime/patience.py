"""Waiting that ends on a clock that stands still.

A manual clock moves only when a test moves it. A test that closes its scheduler, or has left its ``with`` block, moves
it no more, and waiting for it would last forever.
"""

from __future__ import annotations

import asyncio
import contextlib

from taskmill.core.ports import Clock

STILL = 1.0
"""Real seconds after which a clock that has not moved is not waited for."""


async def wait_unless_still(clock: Clock, event: asyncio.Event, until: float) -> bool:
    """Wait as ``clock.wait`` does; False if the clock has stood still for :data:`STILL`. May return early."""
    before = clock.monotonic()
    if event.is_set() or until <= before:
        return True
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(STILL):
            await clock.wait(event, until)
            return True
    return clock.monotonic() > before


async def pause(clock: Clock, seconds: float) -> None:
    """Let some time pass before what has failed is tried again."""
    await wait_unless_still(clock, asyncio.Event(), clock.monotonic() + seconds)
