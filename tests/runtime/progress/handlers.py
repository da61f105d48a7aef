"""Handlers that move bytes, and that worker processes import by name."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from taskmill import Context, Domain, IoBudget, Submission

moving = Domain("moving")
BLOCK = 1 << 20


def write_durably(path: str, blocks: int) -> None:
    with Path(path).open("wb") as file:
        for _ in range(blocks):
            file.write(os.urandom(BLOCK))
        file.flush()
        os.fsync(file.fileno())


@moving.task(run_in="process")
def says_twice(ctx: Context) -> None:
    ctx.record_io(disk_read=1, net_tx=10)
    ctx.record_io(disk_read=2, net_rx=5)


@moving.task(run_in="process")
async def says_twice_on_a_loop(ctx: Context) -> None:
    ctx.record_io(disk_read=1, net_tx=10)
    ctx.record_io(disk_read=2, net_rx=5)


@moving.task(run_in="process")
def writes(path: str, blocks: int) -> None:
    write_durably(path, blocks)


@moving.task(run_in="process")
def writes_and_says(ctx: Context, path: str, blocks: int, said: int) -> None:
    write_durably(path, blocks)
    ctx.record_io(disk_write=said, net_tx=7)


@moving.task(run_in="process")
def does_nothing() -> None:
    return


@moving.task(run_in="process")
def dies_once(ctx: Context) -> int:
    ctx.record_io(disk_write=99)
    if ctx.attempt == 1:
        ctx.save(seen=True)
        os.kill(os.getpid(), signal.SIGKILL)
    return len(ctx.saved)


@moving.task(run_in="process")
def fails_having_moved(ctx: Context) -> None:
    ctx.record_io(disk_write=99)
    raise ValueError("no")


@moving.task(run_in="process")
def reads_its_own(ctx: Context) -> dict[str, int]:
    assert ctx.task.io is not None
    return {str(axis): amount for axis, amount in ctx.task.io.axes().items()}


@moving.task(io=lambda i: IoBudget(disk_write=i))
async def leaf(i: int) -> int:
    return i


@moving.task(run_in="process")
def spawns(ctx: Context) -> int:
    ctx.spawn_many(
        [
            leaf.prepare(5),
            leaf.options(io=IoBudget(net_rx=6)).prepare(1),
            leaf.options(io="learn").prepare(2),
            leaf.options(io=None).prepare(3),
            Submission("moving::leaf", {"i": 8}, io=IoBudget(disk_read=7)),
        ]
    )
    return 0


@moving.task(run_in="process")
def spawns_wrongly(ctx: Context) -> str:
    wrong_options: dict[str, Any] = {"io": {"disk_write": -5}}
    try:
        ctx.spawn(Submission("moving::leaf", {"i": 1}, **wrong_options))
    except Exception as wrong:
        return f"{type(wrong).__name__}: {wrong}"
    return "stored"
