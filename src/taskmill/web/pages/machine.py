"""The machine and the nodes: pressure against limits, capacity, budgets, and what is held back."""

from __future__ import annotations

from datetime import UTC, datetime

from taskmill import IoBudget, Status
from taskmill.web.backend import Backend, CheckedRequest
from taskmill.web.pages.overview import busiest
from taskmill.web.shapes import HeldGroup, MachineAnswer, NodeListAnswer, NodeListQuery

MOST_HELD = 5


async def machine(backend: Backend, asked: CheckedRequest) -> MachineAnswer:  # noqa: ARG001 - all pages are called alike
    snapshot = await backend.scheduler.snapshot()
    budgets = IoBudget()
    for record in snapshot.running:
        if record.io is not None:
            budgets += record.io
    waiting = [group.name for group in busiest(snapshot, len(snapshot.groups)) if group.pending]
    held = [found for name in waiting[:MOST_HELD] if (found := await _held(backend, name)) is not None]
    return MachineAnswer(
        machines=await backend.scheduler.machines(), budgets=budgets, running=len(snapshot.running), held=held
    )


async def _held(backend: Backend, group: str) -> HeldGroup | None:
    """Return the oldest waiting task of a group with its explanation; None if it has started meanwhile."""
    found = await (await backend.reader()).page(group=group, state=Status.PENDING, sort="oldest", limit=1)
    if not found.tasks:
        return None
    record = backend.shown(found.tasks[0])
    since = max(record.created_at, record.run_at or record.created_at)
    return HeldGroup(
        group=group,
        task_id=record.id,
        type=record.type,
        since=since,
        waited=max(0.0, (datetime.now(UTC) - since).total_seconds()),
        explanation=await backend.scheduler.explain(record.id),
    )


async def nodes(backend: Backend, asked: CheckedRequest) -> NodeListAnswer:
    query: NodeListQuery = asked.query
    snapshot = await backend.scheduler.snapshot()
    return NodeListAnswer(nodes=snapshot.nodes[: query.limit], running=backend.listed(snapshot.running[: query.limit]))
