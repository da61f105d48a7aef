"""The task types of families that are killed while they run. Each part of a task records its start and its end.

The payload of a task, a :class:`Plan`, says what it does and has the plans of its children. The label of a child
says where it was spawned: parent, attempt, part and number.

The durations of handlers, ``finalize`` and hooks are part of the load; nothing is awaited with them.
"""

from __future__ import annotations

import asyncio
import functools
import os
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from taskmill import Context, Domain, GiveUp, Retry, Submission
from taskmill.errors import InvalidState
from tests.crash.journal import Journal
from tests.crash.points import die
from tests.crash.workload import JOURNAL_PATH, JOURNAL_WHO

domain = Domain("kin", retry=Retry.constant(1, 0))


class Plan(msgspec.Struct, omit_defaults=True):
    """What a task does."""

    type: str
    takes: float = 0.01
    how: str = "work"
    """The handler's action: ``work``, ``flaky``, ``fail``, ``give up`` or ``poison``, which kills the process."""
    finish: str = "work"
    """The action of ``finalize``."""
    tidy: str = "work"
    """The action of the hook: ``work`` or ``poison``."""
    name: str | None = None
    """Its key, if it has one."""
    fail_fast: bool = True
    children: list[Plan] = []
    more: list[Plan] = []
    """Children of the first ``finalize``."""
    in_a_row: bool = False
    """True if each child depends on the one before."""
    shares_keys: bool = False
    """True if children have keys, so that a second attempt does not store those that are still active."""
    remembers: bool = False
    """True if the handler saves that it has spawned, so that a second attempt does not spawn again."""
    sibling: bool = False
    """True if it spawns one more task for its own parent."""


def within_finalize() -> None:
    """Do nothing; the process may be killed here."""


def within_hook() -> None:
    """Do nothing; the process may be killed here."""


@functools.cache
def journal() -> Journal:
    """Return the journal of this process, which may be a worker that writes in the name of its parent."""
    return Journal(Path(os.environ[JOURNAL_PATH]), os.environ[JOURNAL_WHO])


def _milliseconds(moment: datetime | None) -> int | None:
    return None if moment is None else round(moment.timestamp() * 1000)


def begins(ctx: Context, part: str) -> None:
    task = ctx.task
    journal().write(
        "start",
        id=task.id,
        attempt=ctx.attempt,
        part=part,
        label=task.label,
        due=_milliseconds(task.run_at),
        saved="spawned" in ctx.saved,
        wall=time.time(),
    )


def ends(ctx: Context, part: str, how: str) -> None:
    journal().write("end", id=ctx.task.id, attempt=ctx.attempt, part=part, how=how, wall=time.time())


def offspring(ctx: Context, plan: Plan, plans: list[Plan], part: str) -> list[Submission]:
    """Return the children of this attempt, ready to be spawned."""
    submissions: list[Submission] = []
    for number, child in enumerate(plans):
        label = f"{ctx.task.id}/{ctx.attempt}/{part}/{number}"
        options: dict[str, Any] = {"label": label, "fail_fast": child.fail_fast, "ref": label}
        if plan.in_a_row and submissions:
            options["depends_on"] = [submissions[-1].options["ref"]]
            options["on_dependency_failure"] = "ignore"
        if plan.shares_keys:
            options["key"] = f"{ctx.task.id}/{part}/{number}"
        submissions.append(TYPES[child.type].options(**options).prepare(plan=child))
    return submissions


def note_spawning(ctx: Context, submissions: list[Submission]) -> None:
    keyed = any("key" in submission.options for submission in submissions)
    labels = [submission.options["label"] for submission in submissions]
    journal().write("spawning", id=ctx.task.id, attempt=ctx.attempt, labels=labels, keyed=keyed)


def note_spawned(ctx: Context, submissions: list[Submission], handles: list[Any]) -> None:
    journal().write(
        "spawned",
        id=ctx.task.id,
        attempt=ctx.attempt,
        labels=[submission.options["label"] for submission in submissions],
        ids=[handle.id for handle in handles],
        kinds=[handle.kind for handle in handles],
    )


def note_refused(ctx: Context) -> None:
    journal().write("spawn refused", id=ctx.task.id, attempt=ctx.attempt)


async def spawn(ctx: Context, submissions: list[Submission], *, sibling: bool = False) -> None:
    note_spawning(ctx, submissions)
    try:
        handles = await (ctx.spawn_siblings(submissions) if sibling else ctx.spawn_many(submissions))
    except InvalidState:
        # Its stop was requested meanwhile.
        note_refused(ctx)
        raise
    note_spawned(ctx, submissions, handles)


def spawn_from_thread(ctx: Context, submissions: list[Submission]) -> None:
    note_spawning(ctx, submissions)
    try:
        handles = ctx.spawn_many(submissions)
    except InvalidState:
        note_refused(ctx)
        raise
    note_spawned(ctx, submissions, handles)


def note_saved(ctx: Context) -> None:
    journal().write("saved", id=ctx.task.id, attempt=ctx.attempt)


def done(ctx: Context, part: str, how: str) -> dict[str, Any]:
    """End a part that was not stopped: return its result, or raise its failure."""
    if how == "poison":
        journal().write("poisoned", id=ctx.task.id, attempt=ctx.attempt)
        die()
    if how == "flaky":
        how = "fail" if ctx.task.retries == 0 else "work"
    ends(ctx, part, how)
    if how == "fail":
        raise RuntimeError("as planned")
    if how == "give up":
        raise GiveUp("as planned")
    return {"part": part, "attempt": ctx.attempt, "children": [child.id for child in ctx.children]}


async def handle(ctx: Context, plan: Plan) -> dict[str, Any]:
    begins(ctx, "handler")
    try:
        if plan.children and "spawned" not in ctx.saved:
            await spawn(ctx, offspring(ctx, plan, plan.children, "handler"))
            if plan.remembers:
                await ctx.save(spawned=True)
                note_saved(ctx)
        if plan.sibling and ctx.attempt == 1:
            await spawn(ctx, offspring(ctx, plan, [Plan("leaf")], "sibling"), sibling=True)
        await asyncio.sleep(plan.takes)
    except (asyncio.CancelledError, InvalidState):
        ends(ctx, "handler", "stopped")
        raise
    return done(ctx, "handler", plan.how)


async def finalize(ctx: Context, plan: Plan) -> dict[str, Any]:
    begins(ctx, "finalize")
    try:
        if plan.more and "again" not in ctx.saved:
            await spawn(ctx, offspring(ctx, plan, plan.more, "finalize"))
            await ctx.save(again=True)
        await asyncio.sleep(plan.takes / 2)
        within_finalize()
    except (asyncio.CancelledError, InvalidState):
        ends(ctx, "finalize", "stopped")
        raise
    return done(ctx, "finalize", plan.finish)


async def tidy_up(ctx: Context, plan: Plan) -> None:
    begins(ctx, "hook")
    await asyncio.sleep(plan.takes / 2)
    within_hook()
    done(ctx, "hook", plan.tidy)


@domain.task
async def leaf(ctx: Context, plan: Plan) -> dict[str, Any]:
    """Run on the loop, with a hook."""
    return await handle(ctx, plan)


@domain.task
async def bare(ctx: Context, plan: Plan) -> dict[str, Any]:
    """Run without any hook; as a parent it completes with the result of its handler."""
    return await handle(ctx, plan)


@domain.task
async def parent(ctx: Context, plan: Plan) -> dict[str, Any]:
    return await handle(ctx, plan)


@domain.task(max_children=2)
async def narrow(ctx: Context, plan: Plan) -> dict[str, Any]:
    """Let two of its children into the queue at once."""
    return await handle(ctx, plan)


@domain.task(on_duplicate="supersede", key=lambda plan: plan.name)
async def clan(ctx: Context, plan: Plan) -> dict[str, Any]:
    """Be superseded by the next task with the same key."""
    return await handle(ctx, plan)


@domain.task
def threaded(ctx: Context, plan: Plan) -> dict[str, Any]:
    """Run in a thread, whatever it does."""
    begins(ctx, "handler")
    try:
        if plan.children:
            spawn_from_thread(ctx, offspring(ctx, plan, plan.children, "handler"))
        until = time.monotonic() + plan.takes
        while time.monotonic() < until:
            ctx.check_cancelled()
            time.sleep(0.003)
    except (asyncio.CancelledError, InvalidState):
        ends(ctx, "handler", "stopped")
        raise
    return done(ctx, "handler", plan.how)


@threaded.finalize
def finalize_in_thread(ctx: Context, plan: Plan) -> dict[str, Any]:
    begins(ctx, "finalize")
    time.sleep(plan.takes / 2)
    within_finalize()
    return done(ctx, "finalize", plan.finish)


@threaded.on_cancel
def tidy_up_in_thread(ctx: Context, plan: Plan) -> None:
    begins(ctx, "hook")
    time.sleep(plan.takes / 2)
    within_hook()
    done(ctx, "hook", plan.tidy)


@domain.task(run_in="process")
def distant(ctx: Context, plan: Plan) -> dict[str, Any]:
    """Run in a worker process, which is ended when the task must stop."""
    begins(ctx, "handler")
    spawn_from_thread(ctx, offspring(ctx, plan, plan.children, "handler"))
    time.sleep(plan.takes)
    return done(ctx, "handler", plan.how)


@distant.finalize
def finalize_in_process(ctx: Context, plan: Plan) -> dict[str, Any]:
    begins(ctx, "finalize")
    time.sleep(plan.takes / 2)
    return done(ctx, "finalize", plan.finish)


for task in (parent, narrow, clan):
    task.finalize(finalize)
for task in (leaf, parent, narrow, clan, distant):
    task.on_cancel(tidy_up)

TYPES: dict[str, Any] = {
    "leaf": leaf,
    "bare": bare,
    "parent": parent,
    "narrow": narrow,
    "clan": clan,
    "threaded": threaded,
    "distant": distant,
}
WITH_FINALIZE = {parent.name, narrow.name, clan.name, threaded.name, distant.name}
WITH_HOOK = {leaf.name, *WITH_FINALIZE}
