"""Handlers that worker processes import by name."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from taskmill import ConfigError, GiveUp, InvalidState, Retry, RetryLater, Submission, TaskmillError
from taskmill.define.context import Context
from taskmill.define.domain import Domain

work = Domain("work")


@dataclass
class Point:
    x: int
    at: datetime


@work.task(run_in="process")
def move(point: Point, by: int = 1) -> Point:
    assert isinstance(point.at, datetime)
    return Point(point.x + by, point.at + timedelta(days=1))


@work.task(run_in="process")
async def double(number: int) -> int:
    await asyncio.sleep(0)
    return number * 2


@work.task(run_in="process")
def fail(message: str) -> None:
    raise ValueError(message)


@work.task(run_in="process")
def refuse() -> None:
    raise GiveUp("never")


@work.task(run_in="process")
def retry_in_two_seconds() -> None:
    raise RetryLater("busy", after=2)


@work.task(run_in="process")
def process_id() -> int:
    return os.getpid()


@work.task(run_in="process")
def unstorable() -> object:
    return object()


@work.task(run_in="process")
def read_record(ctx: Context, text: str) -> list[object]:
    task = ctx.task
    return [task.id, task.attempt, ctx.attempt, dict(task.payload), dict(task.tags), task.last_error, task.status,
            task.created_at, dict(ctx.saved), ctx.cancelled]  # fmt: skip


@work.task(run_in="process")
def save_and_report(ctx: Context) -> list[str]:
    ctx.progress(0.25, "a quarter")
    ctx.save(step=1)
    ctx.save(when=datetime(2026, 1, 1, tzinfo=UTC))
    ctx.progress.bytes(100)
    ctx.progress.advance(50)
    return sorted(ctx.saved)


@work.task(run_in="process")
async def save_and_report_on_loop(ctx: Context) -> int:
    await ctx.save(step=1)
    await asyncio.gather(ctx.save(step=2), asyncio.to_thread(ctx.save, step=3))
    ctx.save(step=4)
    ctx.progress(1)
    return len(ctx.saved)


@work.task(run_in="process")
def told_no(ctx: Context) -> str:
    try:
        ctx.save(step=1)
    except InvalidState as refused:
        return str(refused)
    return "saved"


@work.task(run_in="process")
def needs_state(ctx: Context) -> int:
    return ctx.state(int)


@work.task(run_in="process")
def ask_for_state(ctx: Context) -> str:
    try:
        ctx.state(int)
    except ConfigError as wrong:
        return str(wrong)
    return "found"


@work.task(run_in="process")
def report_a_million_times(ctx: Context) -> None:
    for done in range(1_000_001):
        ctx.progress(done / 1_000_000)


@work.task(run_in="process")
def report_twice_and_fall_silent(ctx: Context) -> None:
    ctx.progress(0.1)
    ctx.progress(0.2)
    threading.Event().wait()


@work.task(run_in="process")
def report_nonsense(ctx: Context) -> str:
    ctx.progress(0.5, "\udcff")
    ctx.progress.advance(0.5)  # type: ignore[arg-type]
    return "done"


@work.task(run_in="process")
def spin(ctx: Context) -> None:
    ctx.progress(0.1, str(os.getpid()))
    while True:
        pass


@work.task(run_in="process")
def spin_and_ignore_signals(ctx: Context) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    ctx.progress(0.1)
    while True:
        pass


@work.task(run_in="process")
async def wait_forever(ctx: Context) -> None:
    ctx.progress(0.1)
    await asyncio.Event().wait()


@work.task(run_in="process")
def start_a_process_and_wait(ctx: Context, inherit: int) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=(inherit,)):
        os.close(inherit)
        ctx.progress(0.1)
        threading.Event().wait()


@work.task(run_in="process")
def inherits_nothing(inherit: int) -> int:
    program = f"import os, sys\ntry: os.fstat({inherit})\nexcept OSError: sys.exit(3)"
    return subprocess.run([sys.executable, "-c", program], check=False, close_fds=False).returncode


@work.task(run_in="process")
def exit_with(status: int) -> None:
    os._exit(status)


@work.task(run_in="process")
def leave_politely() -> None:
    sys.exit(3)


@work.task(run_in="process")
def die_of(number: int) -> None:
    os.kill(os.getpid(), number)
    threading.Event().wait()


@work.task(run_in="process")
def fork_and_die() -> None:
    """Die, while the forked process keeps the worker's socket open."""
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.close(writer)
        os.read(reader, 1)
        signal.pause()
    os._exit(4)


@work.task(run_in="process")
def outlive_the_call(ctx: Context) -> None:
    def report_later() -> None:
        stay.wait()
        ctx.progress(0.9, "too late")
        try:
            ctx.save(late=True)
        except InvalidState:
            refused.set()

    threading.Thread(target=report_later, daemon=True).start()


@work.task(run_in="process")
def let_the_rest_speak() -> bool:
    stay.set()
    refused.wait()
    return True


stay = threading.Event()
refused = threading.Event()


@work.task(run_in="process")
def signal_settings() -> list[str]:
    return [
        str(signal.getsignal(signal.SIGINT)),
        str(signal.getsignal(signal.SIGTERM)),
        os.readlink("/proc/self/fd/0") if os.path.exists("/proc/self/fd/0") else "/dev/null",
    ]


def plain(number: int) -> int:
    return number + 1


renamed = work.task(name="renamed", run_in="process")(plain)


@work.task
async def part(number: int) -> int:
    return number * 2


@work.task
def whole_in_thread(ctx: Context, parts: int) -> None:
    first = ctx.spawn(part.prepare(0))
    rest = ctx.spawn_many(part.prepare(number) for number in range(1, parts))
    ctx.save(spawned=len({first.id, *(handle.id for handle in rest)}))


@whole_in_thread.finalize
def finish_in_thread(ctx: Context, parts: int) -> dict[str, object]:
    return {"parts": [child.result for child in ctx.children], "spawned": ctx.saved["spawned"]}


@work.task(run_in="process")
def whole_in_process(ctx: Context, parts: int) -> None:
    first = ctx.spawn(part.prepare(0))
    rest = ctx.spawn_many(part.prepare(number) for number in range(1, parts))
    ctx.save(spawned=len({first.id, *(handle.id for handle in rest)}))


@whole_in_process.finalize
def finish_in_process(ctx: Context, parts: int) -> dict[str, object]:
    return {"parts": [child.result for child in ctx.children], "spawned": ctx.saved["spawned"]}


@work.task(run_in="process")
async def whole_in_async_process(ctx: Context, parts: int) -> None:
    first = await ctx.spawn(part.options(tags={"a": "b"}, retry=Retry.none(), ttl=50).prepare(0))
    rest = await ctx.spawn_many(part.prepare(number) for number in range(1, parts))
    await ctx.save(spawned=len({first.id, *(handle.id for handle in rest)}))


@whole_in_async_process.finalize
async def finish_in_async_process(ctx: Context, parts: int) -> dict[str, object]:
    return {"parts": [child.result for child in ctx.children], "spawned": ctx.saved["spawned"]}


@work.task(run_in="process")
def spawn_what_is_refused(ctx: Context) -> list[str]:
    """Make calls that are refused: each raises its own error, and the handler continues."""
    refused: list[str] = []
    ctx.spawn(part.options(key="k", run_after=3600).prepare(0))
    for submission in (
        part.options(key="k", on_duplicate="reject").prepare(1),
        part.options(depends_on=[10_000]).prepare(1),
        part.options(depends_on=[ctx.task.id]).prepare(1),
        Submission("work::part", {"number": object()}),
        Submission("work::part", {"nubmer": 1}),
        Submission("work::nothing", {}),
    ):
        try:
            ctx.spawn(submission)
        except TaskmillError as wrong:
            told = getattr(wrong, "existing_id", getattr(wrong, "id", None))
            refused.append(f"{type(wrong).__name__} {'' if told is None else told}".strip())
    raise GiveUp(" ".join(refused))


class Mute(Exception):
    """An exception whose text cannot be read."""

    def __str__(self) -> str:
        raise RuntimeError("says nothing")

    __repr__ = __str__


@work.task(run_in="process")
def raises_mute() -> None:
    raise Mute


class _BadStream:
    def flush(self) -> None:
        raise LookupError("cannot be flushed")

    def write(self, text: str) -> int:
        return len(text)


@work.task(run_in="process")
def flushes_badly() -> str:
    sys.stdout = _BadStream()
    return "done"


@work.task(run_in="process")
def leaves_a_bad_log() -> None:
    class Raising(logging.Filter):
        def filter(self, record: logging.LogRecord) -> bool:
            raise RuntimeError("the filter is broken")

    logging.getLogger("taskmill").addFilter(Raising())
    raise ValueError("no")
