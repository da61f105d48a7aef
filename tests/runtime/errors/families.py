"""A parent whose ``finalize`` runs in a worker process and reads the errors of its children."""

from __future__ import annotations

from taskmill import Context, Domain, Retry

domain = Domain("family", retry=Retry.none())


@domain.task
async def child() -> None:
    raise ValueError("of a child")


@domain.task(run_in="process", fail_fast=False)
async def parent(ctx: Context) -> None:
    await ctx.spawn(child.prepare())


@parent.finalize
async def end(ctx: Context) -> None:
    ((error,),) = [record.errors for record in ctx.children]
    assert error.error == "ValueError: of a child"
    assert error.duration is not None
