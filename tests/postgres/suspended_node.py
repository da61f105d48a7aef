"""A node that is suspended while it runs a task: run as a program with an address, the length of a lease and a name.

With the argument ``claiming`` it suspends itself once, after it has claimed a task and before it begins it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from pathlib import Path

from taskmill import Context, Domain, InvalidState, Scheduler
from taskmill.model.turn import Turn, TurnResult
from taskmill.store.postgres import lease
from taskmill.store.postgres.store import PostgresStore

domain = Domain("d")


def note(ctx: Context, folder: str, what: str) -> None:
    """Create a file that says what happened to this attempt."""
    (Path(folder) / f"{what}.{ctx.attempt}").touch()


@domain.task
async def on_the_loop(ctx: Context, folder: str) -> str:
    """Run the first attempt until it is stopped, and then let it write and return anyway."""
    note(ctx, folder, "begins")
    if ctx.attempt == 1:
        try:
            while True:
                ctx.progress(0.1, "late")
                await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            note(ctx, folder, "told")
            ctx.progress(0.9, "late")
            try:
                await ctx.save(by="late")
            except InvalidState:
                note(ctx, folder, "refused")
            return "late"
    await ctx.save(by="second")
    ctx.progress(0.5, "second")
    while not (Path(folder) / "go").exists():
        await asyncio.sleep(0.02)
    return "second"


@domain.task
def in_a_thread(ctx: Context, folder: str) -> str:
    """Do the same, in a thread."""
    note(ctx, folder, "begins")
    if ctx.attempt == 1:
        while not ctx.cancelled:
            ctx.progress(0.1, "late")
            time.sleep(0.01)
        note(ctx, folder, "told")
        ctx.progress(0.9, "late")
        try:
            ctx.save(by="late")
        except InvalidState:
            note(ctx, folder, "refused")
        return "late"
    ctx.save(by="second")
    ctx.progress(0.5, "second")
    while not (Path(folder) / "go").exists():
        time.sleep(0.02)
    return "second"


@domain.task(run_in="process")
def in_a_process(ctx: Context, folder: str) -> str:
    """Run the first attempt while its node is suspended, and return when another attempt has begun."""
    note(ctx, folder, "begins")
    if ctx.attempt == 1:
        while not (Path(folder) / "begins.2").exists():
            time.sleep(0.01)
        ctx.progress(0.9, "late")
        note(ctx, folder, "returns")
        return "late"
    ctx.save(by="second")
    while not (Path(folder) / "go").exists():
        time.sleep(0.02)
    return "second"


@domain.task(run_in="process")
def saves_in_a_process(ctx: Context, folder: str) -> str:
    """Run the first attempt while its node is suspended, save when another attempt has begun, and never return."""
    (Path(folder) / f"process.{ctx.attempt}.new").write_text(str(os.getpid()))
    (Path(folder) / f"process.{ctx.attempt}.new").rename(Path(folder) / f"process.{ctx.attempt}")
    note(ctx, folder, "begins")
    if ctx.attempt == 1:
        while not (Path(folder) / "begins.2").exists():
            time.sleep(0.01)
        note(ctx, folder, "saves")
        try:
            ctx.save(by="late")
        except InvalidState:
            note(ctx, folder, "refused")
        while True:
            time.sleep(0.01)
    ctx.save(by="second")
    while not (Path(folder) / "go").exists():
        time.sleep(0.02)
    return "second"


def suspend_itself_when_it_claims() -> None:
    """Suspend this process once, after a claim is committed."""
    whole = PostgresStore.turn
    suspended = False

    async def turn(self: PostgresStore, turn: Turn) -> TurnResult:
        nonlocal suspended
        result = await whole(self, turn)
        if result.claimed and not suspended:
            suspended = True
            os.kill(os.getpid(), signal.SIGSTOP)
        return result

    PostgresStore.turn = turn  # type: ignore[method-assign]


def only_here(name: str) -> None:
    """Do nothing; no other node has this task type."""

    @domain.task(name=f"only {name}")
    async def only() -> str:
        return name


async def main(address: str) -> None:
    async with Scheduler(address, domains=[domain]) as scheduler:
        await scheduler.run()


if __name__ == "__main__":
    lease.LEASE = float(sys.argv[2])
    only_here(sys.argv[3])
    if sys.argv[4:] == ["claiming"]:
        suspend_itself_when_it_claims()
    asyncio.run(main(sys.argv[1]))
