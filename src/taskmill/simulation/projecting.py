"""Project a batch of submissions: which of them would start together, what ends each phase, and how long all take.

The batch is simulated by itself, on a queue with nothing else in it. For the phases all attempts take equally long, so
that tasks which start together also end together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from functools import reduce
from typing import get_args

from taskmill.errors import TaskmillError
from taskmill.model.controls import ScopeKind
from taskmill.model.explanation import Reason
from taskmill.model.io_budget import NO_IO, IoBudget
from taskmill.model.looking_ahead import Fate, PhaseEnd, ProjectedPhase, Projection
from taskmill.model.queue_state import QueuedTask, WholeQueue
from taskmill.model.task import NO_LINKS, NewTask
from taskmill.policy.holds import Held
from taskmill.policy.io_room import expected_io
from taskmill.policy.rehearsal import Rehearsal
from taskmill.policy.rules import Rules
from taskmill.policy.wording import group_text, plural, rate_text
from taskmill.simulation.beginning import Beginning
from taskmill.simulation.engine import Simulation
from taskmill.simulation.luck import EqualLuck, History, Luck, TypicalLuck

STEP_MS = 1000
"""How long each attempt takes when phases are computed."""
LONGEST_MS = 366 * 24 * 3600 * 1000
"""Beyond this, nothing is projected."""

_ENDS: Mapping[Reason, PhaseEnd] = {
    "slots": "slots",
    "group_cap": "cap",
    "domain_cap": "cap",
    "group_rate": "rate",
    "type_rate": "rate",
    "io": "io",
    "share": "share",
    "group_paused": "paused",
    "domain_paused": "paused",
    "scheduler_paused": "paused",
    "no_handler": "no_handler",
}
assert set(_ENDS.values()) | {"dependency", "due", "done"} == set(get_args(PhaseEnd))  # noqa: S101


def project(
    count: int,
    resolved: Sequence[int],
    refused: Mapping[int, TaskmillError],
    rehearsal: Rehearsal,
    queue: WholeQueue,
    rules: Rules,
) -> Projection:
    """Return the projection of ``count`` submissions.

    ``resolved`` has the indexes of those that were rehearsed, ``refused`` the errors of the others.
    """
    errors = {**refused, **{resolved[at]: wrong for at, wrong in rehearsal.errors.items()}}
    outcomes: list[Fate] = ["rejected"] * count
    indexes: dict[int, list[int]] = {}
    for at, stored in rehearsal.stored.items():
        outcomes[resolved[at]] = stored.kind
        indexes.setdefault(stored.id, []).append(resolved[at])
    queue.tasks = [queued(id, task) for id, task in enumerate(rehearsal.plan.fresh, rehearsal.plan.first_id)]
    fresh = {task.id for task in queue.tasks}
    queue.waits_for = [(id, on) for id, on, is_open in rehearsal.plan.edges if is_open and on in fresh]
    io = {task.id: _expected(task, queue) for task in queue.tasks}
    beginning = Beginning(queue, rules)
    return Projection(
        outcomes=outcomes,
        errors=dict(sorted(errors.items())),
        phases=_phases(beginning, indexes, io),
        total_io=_sum(io.values()),
        estimated_duration=_duration(beginning, TypicalLuck(History(queue.recent))),
    )


def queued(id: int, task: NewTask) -> QueuedTask:
    """Return a new task as a simulation sees it once it is stored."""
    links = task.links or NO_LINKS
    renewed_at = task.created_at if task.queued_at < task.created_at else None
    return QueuedTask(
        id=id,
        type=task.type,
        group=task.group,
        priority=task.priority,
        urgency=task.priority,
        status=task.status,
        created_at=task.created_at,
        queued_at=task.queued_at,
        renewed_at=renewed_at,
        due_at=task.due_at,
        expires_at=task.expires_at,
        started_at=None,
        paused_at=None,
        clock_from=task.created_at,
        place_id=task.place_id or id,
        retries=0,
        may_expire=task.expires_at is not None,
        io=task.io,
        gate_id=None,
        parent_id=links.parent_id,
        held=links.held,
        series_id=None,
        cron=None,
        on_dependency_failure=links.on_dependency_failure,
        overrides=task.overrides,
        children=0,
    )


def _expected(task: QueuedTask, queue: WholeQueue) -> IoBudget:
    """Return the bytes that a task is expected to move."""
    return NO_IO if task.io is None else expected_io(task.io, queue.moved.get(task.type)) or NO_IO


def _sum(budgets: Iterable[IoBudget]) -> IoBudget:
    return reduce(IoBudget.__add__, budgets, NO_IO)


def _phases(
    beginning: Beginning, indexes: Mapping[int, Sequence[int]], io: Mapping[int, IoBudget]
) -> list[ProjectedPhase]:
    simulation = Simulation(beginning, EqualLuck(STEP_MS))
    phases: list[ProjectedPhase] = []
    known = 0
    while True:
        simulation.turn()
        started = list(simulation.starts)[known:]
        known += len(started)
        if started:
            end, detail = _end_of_phase(simulation, beginning, known)
            together = sorted(index for id in started for index in indexes.get(id, ()))
            phases.append(ProjectedPhase(together, end, detail, _sum([io[id] for id in started])))
        at = simulation.next_at()
        if at is None or simulation.is_over or at > beginning.now + LONGEST_MS:
            return phases
        simulation.step_to(at)


def _end_of_phase(simulation: Simulation, beginning: Beginning, started: int) -> tuple[PhaseEnd, str]:
    if started + len(simulation.expired) >= len(beginning.tasks):
        return "done", "no submission is left"
    held = simulation.hold()
    if held is not None:
        return _ENDS[held.reason], _detail(held, beginning.rules)
    left = [task for id, task in beginning.tasks.items() if id not in simulation.starts and id not in simulation.ends]
    if any(task.id in beginning.blockers for task in left):
        return "dependency", "the next submissions depend on some that have not ended"
    return "due", "the next submissions are not due yet"


def _detail(held: Held, rules: Rules) -> str:
    scope = held.scope
    what = group_text(scope.name) if scope.kind is ScopeKind.GROUP else f"{scope.kind} {scope.name!r}"
    match held.reason:
        case "slots":
            return "the only slot is taken" if held.limit == 1 else f"all {held.limit} slots are taken"
        case "group_cap" | "domain_cap":
            return f"{what} runs {held.used} of at most {plural(held.limit, 'task', 'tasks')}"
        case "group_rate" | "type_rate" if (limit := rules.rate(scope)) is not None:
            return f"the rate limit of {what} is {rate_text(limit)}"
        case "io":
            return "the bytes of the next submission do not fit beside those of running ones"
        case "share":
            return "the groups of the next submissions use their whole shares"
        case "no_handler":
            return f"no handler for {scope.name} is registered in any scheduler that runs tasks"
        case _:
            return "the scheduler is paused" if scope.kind is ScopeKind.SCHEDULER else f"{what} is paused"


def _duration(beginning: Beginning, luck: Luck) -> timedelta | None:
    simulation = Simulation(beginning, luck)
    simulation.run(beginning.now + LONGEST_MS)
    if not simulation.is_over or simulation.expired:
        return None
    return timedelta(milliseconds=max(simulation.ends.values(), default=beginning.now) - beginning.now)
