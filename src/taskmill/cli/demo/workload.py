"""The tasks of the demonstration: a sync program that uploads, hashes, lists, fails, gives up and is cancelled.

Network and disk are simulated by sleeping; the hashing is real. The plan says how each task must end, so that the
result can be checked.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import random
import threading
import time
from collections.abc import Generator
from dataclasses import dataclass

from taskmill import Context, Domain, Ending, GiveUp, Priority, Retry, RetryLater, Submission

BUCKETS = ("s3://photos", "s3://backup")
WEIGHTS = {BUCKETS[0]: 3, BUCKETS[1]: 1}
"""The weights of two tenants."""
LOCAL = "local"
STEPS = 20
PIECE = bytes(64 * 1024)
FAR_AWAY = 3600


class Witness:
    """Counts attempts from inside their handlers, and notices two attempts of one task at the same time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._alive: set[int] = set()
        self.attempts = 0
        self.overlaps = 0
        self.most_at_once = 0
        self.uploaded = 0
        self.unwatched: list[tuple[int, str]] = []

    @contextlib.contextmanager
    def attempt(self, ctx: Context) -> Generator[None]:
        id = ctx.task.id
        with self._lock:
            self.attempts += 1
            self.overlaps += id in self._alive
            self._alive.add(id)
            self.most_at_once = max(self.most_at_once, len(self._alive))
        try:
            yield
        finally:
            with self._lock:
                self._alive.discard(id)


sync = Domain("sync", retry=Retry.exponential(5, initial=0.2, maximum=1))


@sync.task
async def upload(ctx: Context, bucket: str, path: str, size: int, seconds: float) -> dict[str, str | int]:
    witness = ctx.state(Witness)
    with witness.attempt(ctx):
        ctx.progress.bytes(size)
        for step in range(STEPS):
            await asyncio.sleep(seconds / STEPS)
            ctx.progress.advance(size * (step + 1) // STEPS - size * step // STEPS)
        witness.uploaded += size
    return {"url": f"{bucket}/{path}", "bytes": size}


@sync.task(group=LOCAL)
def checksum(ctx: Context, path: str, seconds: float) -> str:
    """Run in a thread, as every plain function, without blocking the other tasks."""
    digest = hashlib.sha256(path.encode())
    with ctx.state(Witness).attempt(ctx):
        for step in range(STEPS):
            ctx.check_cancelled()
            digest.update(PIECE)
            time.sleep(seconds / STEPS)
            ctx.progress.of(step + 1, STEPS, "hashing")
    return digest.hexdigest()


@sync.task(priority=Priority.HIGH)
async def list_folder(ctx: Context, folder: str, busy: int, seconds: float) -> int:
    """Fail the first ``busy`` attempts, as a busy server would."""
    with ctx.state(Witness).attempt(ctx):
        await asyncio.sleep(seconds)
        if ctx.task.retries < busy:
            raise RetryLater(f"503 slow down: {folder}")
    return 100


@sync.task(group=BUCKETS[1])
async def restore(ctx: Context, path: str, seconds: float) -> None:
    with ctx.state(Witness).attempt(ctx):
        await asyncio.sleep(seconds)
        raise GiveUp(f"404 {path} is gone")


@sync.task(group=BUCKETS[1], retry=Retry.constant(2, delay=0.2), priority=Priority.LOW)
async def replicate(ctx: Context, path: str, seconds: float) -> None:
    with ctx.state(Witness).attempt(ctx):
        await asyncio.sleep(seconds)
        raise ConnectionError(f"no route to the second region for {path}")


@sync.task(group=LOCAL, priority=Priority.HIGH)
async def watch(ctx: Context, folder: str) -> None:
    """Run until cancelled."""
    with ctx.state(Witness).attempt(ctx):
        ctx.progress(0.0, f"watching {folder}")
        await asyncio.Event().wait()


@watch.on_cancel
async def unwatch(ctx: Context, folder: str) -> None:
    ctx.state(Witness).unwatched.append((ctx.task.id, folder))


@sync.task
async def report(ctx: Context, name: str, seconds: float) -> str:
    with ctx.state(Witness).attempt(ctx):
        await asyncio.sleep(seconds)
    return f"{name} sent"


@dataclass(frozen=True)
class Piece:
    """A submission and how its task must end."""

    submission: Submission
    ending: Ending


@dataclass(frozen=True)
class Plan:
    """All submissions, and how many seconds a ``watch`` task runs before it is cancelled."""

    pieces: list[Piece]
    watch_seconds: float


def planned(tasks: int, seconds: float, slots: int) -> Plan:
    """Return a plan whose tasks fill ``slots`` for roughly ``seconds``; the same plan each time."""
    chance = random.Random(1)  # noqa: S311 - variety, not secrets
    kinds = _mixture(tasks)
    chance.shuffle(kinds)
    nominal = [_nominal(kind, chance) for kind in kinds]
    pace = seconds * slots * 0.8 / max(sum(nominal), 1e-9)
    # With few tasks, none may take very long.
    pace = min(pace, seconds / 3)
    pieces = [
        _piece(kind, number, length * pace, seconds, chance)
        for number, (kind, length) in enumerate(zip(kinds, nominal, strict=True), start=1)
    ]
    return Plan(pieces, watch_seconds=1.5 * pace)


def _mixture(tasks: int) -> list[str]:
    """Return the kinds of the tasks: mostly uploads, and at least one of each kind if there are enough tasks."""
    shares = {
        "checksum": 0.22,
        "listing": 0.14,
        "report": 0.05,
        "restore": 0.02,
        "replicate": 0.02,
        "watch": 0.02,
        "postponed": 0.02,
        "stale": 0.02,
    }
    kinds: list[str] = []
    for kind, share in shares.items():
        kinds += [kind] * max(1, round(tasks * share))
    return (kinds + ["upload"] * (tasks - len(kinds)))[:tasks]


def _nominal(kind: str, chance: random.Random) -> float:
    """Return how long a task of this kind keeps a slot, relative to the others."""
    match kind:
        case "upload":
            return chance.uniform(0.3, 2.0)
        case "postponed" | "stale":
            return 0.0
        case "watch":
            return 1.5
        case _:
            return chance.uniform(0.2, 0.8)


def _piece(kind: str, number: int, length: float, seconds: float, chance: random.Random) -> Piece:
    bucket = BUCKETS[chance.random() < 0.4]
    match kind:
        case "upload":
            path, size = f"img/{number:05}.jpg", int((0.2 + length) * chance.uniform(2e6, 8e6))
            priority = chance.choice([Priority.HIGH, Priority.NORMAL, Priority.NORMAL])
            one = upload.options(key=f"{bucket}/{path}", group=bucket, label=path, priority=priority)
            return Piece(one.prepare(bucket, path, size, length), Ending.COMPLETED)
        case "checksum":
            path = f"disk/{number:05}.raw"
            return Piece(checksum.options(label=path).prepare(path, length), Ending.COMPLETED)
        case "listing":
            folder, busy = f"folder-{number}/", chance.choice([0, 1, 2])
            listing = list_folder.options(group=bucket, label=folder)
            return Piece(listing.prepare(folder, busy, length / (busy + 1)), Ending.COMPLETED)
        case "report":
            name, delay = f"report {number}", chance.uniform(0.1, 0.6) * seconds
            return Piece(report.options(label=name, run_after=delay).prepare(name, length), Ending.COMPLETED)
        case "restore":
            path = f"lost/{number:05}.bak"
            return Piece(restore.options(label=path).prepare(path, length), Ending.FAILED)
        case "replicate":
            path = f"far/{number:05}.bak"
            return Piece(replicate.options(label=path).prepare(path, length / 3), Ending.DEAD_LETTER)
        case "watch":
            folder = f"folder-{number}/"
            return Piece(watch.options(label=folder).prepare(folder), Ending.CANCELLED)
        case "postponed":
            name = f"report {number}"
            return Piece(report.options(label=name, run_after=FAR_AWAY).prepare(name, 0.0), Ending.CANCELLED)
        case _:
            # Expires after a quarter of the time, long before it is due.
            name, ttl = f"stale report {number}", max(seconds / 4, 0.05)
            stale = report.options(label=name, run_after=FAR_AWAY, ttl=ttl)
            return Piece(stale.prepare(name, 0.0), Ending.EXPIRED)
