"""The life of a task, as a table.

**States.** A task has a *standing*: its status while it is active, its ending after that. An active task may also carry
*marks*, columns of its row that say which transitions are possible. A state is a standing and the marks.

**Transitions.** Every change of a standing or a mark is a transition in :data:`TRANSITIONS`. A transition has an event,
the standings it starts from, the standing it leads to, and the marks it sets and clears. There are three ways through
the table:

* Plain: ``pending`` → ``running`` → ``completed``. Almost every task lives like this.
* Again: an attempt that neither ends the task nor leaves it to its children puts it back. It returns to ``waiting`` if
  children come first, else to ``paused`` if it was preempted or its series is paused, else to ``scheduled`` if it is
  due later, else to ``pending``. Only a failure uses a retry. Otherwise the task was *interrupted*: it has started in
  time, so its deadline no longer ends it.
* With children: the attempt leaves the task ``waiting``. The last child to end wakes it, in the same transaction. It
  then ends, or is queued once more for its ``finalize`` or its ``on_cancel`` hook.

**Stopping.** A request to stop (``cancel``, a replacement, a failed child) never ends a live attempt by itself. It
marks the task *stopping*, and the mark defeats every verdict that does not honour it: a success that comes later is
dropped. A tree stops leaves first. Beside this mark, the marks in :data:`OUTRANKED` mean nothing.

**Waiting for other tasks.** A ``blocked`` task waits for dependencies, for its gate (the earlier task with its key), or
for room among its siblings. The transaction that removes the last obstacle releases it.

Two things are not transitions. A pause of the scheduler, a domain or a group changes no task: its tasks are only shown
as paused. Repairing a damaged file and moving a queue to another store write rows as they find them.

``policy/verdicts.py`` and ``policy/families.py`` choose the transitions, the store writes them, and the diagram in
``docs/explanation/lifecycle.md`` is drawn from this table.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from itertools import chain, combinations
from typing import NamedTuple

from taskmill.model.status import Ending, Status


class Mark(StrEnum):
    """A half-state: a column of an active task that is set beside its status."""

    STOPPING = "stopping"
    GATED = "gated"
    HELD = "held"
    FINALIZING = "finalizing"
    INTERRUPTED = "interrupted"
    PREEMPTED = "preempted"
    FROZEN = "frozen"
    RUNS_AGAIN = "runs again"


class Meaning(NamedTuple):
    column: str
    text: str


MARKS: dict[Mark, Meaning] = {
    Mark.STOPPING: Meaning("stop", "it was asked to stop and has not ended: `cancel`, `supersede` or `fail`"),
    Mark.GATED: Meaning("gate_id", "an earlier task with its key has to end before it may start"),
    Mark.HELD: Meaning("held", "`max_children` siblings are in the queue already"),
    Mark.FINALIZING: Meaning("finalizing", "its handler has returned; only its `finalize` is left to run"),
    Mark.INTERRUPTED: Meaning("interrupted", "it started in time and did not fail; its deadline no longer ends it"),
    Mark.PREEMPTED: Meaning("preempted", "it gave its slot to a more urgent task, or waits for pressure to fall"),
    Mark.FROZEN: Meaning("frozen", "its deadline has passed during a pause, which moves the deadline"),
    Mark.RUNS_AGAIN: Meaning("gave_key", "`requeue` has added a run behind it, which holds its key"),
}

OUTRANKED = frozenset({Mark.GATED, Mark.HELD, Mark.FINALIZING, Mark.PREEMPTED, Mark.FROZEN})
"""Marks that mean nothing on a task that is stopping."""

Standing = Status | Ending | None
"""Where a task is. ``None``: it is not stored yet."""


class State(NamedTuple):
    """Where a task is, and what is marked on it."""

    standing: Standing
    marks: frozenset[Mark] = frozenset()

    def seen(self) -> State:
        """Return the state without marks that mean nothing in it."""
        return State(self.standing, self.marks - OUTRANKED) if Mark.STOPPING in self.marks else self


class Transition(NamedTuple):
    """A line of the table."""

    event: str
    sources: tuple[Standing, ...]
    target: Standing = None
    """None if the task stays where it is."""
    sets: tuple[Mark, ...] = ()
    may_set: tuple[Mark, ...] = ()
    clears: tuple[Mark, ...] = ()
    needs: tuple[Mark, ...] = ()
    """Marks without which the transition is not possible."""
    unless: tuple[Mark, ...] = ()
    """Marks with which the transition is not possible."""
    uses_retry: bool = False

    def edges(self) -> Iterator[tuple[Standing, Standing]]:
        """Yield the pairs of standings that the transition connects."""
        for source in self.sources:
            yield source, source if self.target is None else self.target

    def leads(self, before: State, after: State) -> bool:
        """True if the transition turns ``before`` into ``after``."""
        if (before.standing, after.standing) not in self.edges():
            return False
        if not before.marks.issuperset(self.needs) or not before.marks.isdisjoint(self.unless):
            return False
        if isinstance(after.standing, Ending):
            return True  # history has no marks
        certain = before.marks.difference(self.clears).union(self.sets)
        return any(State(after.standing, certain.union(more)).seen() == after for more in _subsets(self.may_set))


def _subsets(marks: tuple[Mark, ...]) -> Iterator[tuple[Mark, ...]]:
    return chain.from_iterable(combinations(marks, size) for size in range(len(marks) + 1))


NEW = (None,)
PENDING, SCHEDULED, BLOCKED = Status.PENDING, Status.SCHEDULED, Status.BLOCKED
RUNNING, WAITING, PAUSED = Status.RUNNING, Status.WAITING, Status.PAUSED
STOPPING, GATED, HELD, FINALIZING = Mark.STOPPING, Mark.GATED, Mark.HELD, Mark.FINALIZING
INTERRUPTED, PREEMPTED, FROZEN, RUNS_AGAIN = Mark.INTERRUPTED, Mark.PREEMPTED, Mark.FROZEN, Mark.RUNS_AGAIN

QUEUED = (PENDING, SCHEDULED, BLOCKED)
IDLE = (*QUEUED, PAUSED)
"""The standings of a task that waits to run."""
NOT_RUNNING = (*IDLE, WAITING)

TRANSITIONS: tuple[Transition, ...] = (
    # A task is stored: submitted, spawned, fired by a cron task, or made as the next occurrence of a series. It is
    # stopping from the start if another submission of the same transaction replaces it.
    Transition("is stored", NEW, PENDING, may_set=(STOPPING,)),
    Transition("is stored for later", NEW, SCHEDULED, may_set=(STOPPING,)),
    Transition("is stored behind other tasks", NEW, BLOCKED, may_set=(GATED, HELD, STOPPING)),
    Transition("is revived", (Ending.DEAD_LETTER,), BLOCKED, may_set=(GATED, HELD)),
    # It waits to run.
    Transition("is due", (SCHEDULED,), PENDING, unless=(STOPPING,)),
    Transition("is released", (BLOCKED,), PENDING, unless=(STOPPING, GATED, HELD)),
    Transition("is released before it is due", (BLOCKED,), SCHEDULED, unless=(STOPPING, GATED, HELD)),
    Transition("finds its gate open", (BLOCKED, PAUSED), clears=(GATED,), needs=(GATED,)),
    Transition("may enter the queue among its siblings", (BLOCKED, PAUSED), clears=(HELD,), needs=(HELD,)),
    Transition("passes its deadline in a pause", QUEUED, sets=(FROZEN,), unless=(STOPPING, INTERRUPTED, FROZEN)),
    Transition("gets its paused time back", IDLE, clears=(FROZEN,), needs=(FROZEN,)),
    Transition("is paused with its series", QUEUED, PAUSED, unless=(STOPPING,)),
    Transition("is resumed with its series", (PAUSED,), BLOCKED, unless=(STOPPING, PREEMPTED)),
    Transition("is resumed after a preemption", (PAUSED,), PENDING, clears=(PREEMPTED,), needs=(PREEMPTED,)),
    Transition("stays paused with its series", (PAUSED,), clears=(PREEMPTED,), needs=(PREEMPTED,)),
    # It runs.
    Transition("is claimed", (PENDING,), RUNNING, clears=(PREEMPTED,), unless=(GATED, HELD)),
    Transition("is claimed and not started", (RUNNING,), PENDING, clears=(PREEMPTED,)),
    Transition("cannot be started now", (RUNNING,), SCHEDULED, clears=(PREEMPTED,)),
    Transition("is preempted by another node", (RUNNING,), sets=(PREEMPTED,), unless=(STOPPING, PREEMPTED)),
    # Its attempt is over, and it runs again.
    Transition("is retried", (RUNNING,), PENDING, clears=(INTERRUPTED, PREEMPTED), uses_retry=True),
    Transition("is retried later", (RUNNING,), SCHEDULED, clears=(INTERRUPTED, PREEMPTED), uses_retry=True),
    Transition("is retried with its series", (RUNNING,), PAUSED, clears=(INTERRUPTED, PREEMPTED), uses_retry=True),
    Transition("is retried after its children", (RUNNING,), WAITING, clears=(INTERRUPTED, PREEMPTED), uses_retry=True),
    Transition("is interrupted", (RUNNING,), PENDING, sets=(INTERRUPTED,), clears=(PREEMPTED,)),
    Transition("is interrupted from outside", (RUNNING,), SCHEDULED, sets=(INTERRUPTED,), clears=(PREEMPTED,)),
    Transition(
        "is interrupted and paused with its series", (RUNNING,), PAUSED, sets=(INTERRUPTED,), clears=(PREEMPTED,)
    ),
    Transition(
        "is interrupted and waits for its children", (RUNNING,), WAITING, sets=(INTERRUPTED,), clears=(PREEMPTED,)
    ),
    Transition("is preempted", (RUNNING,), PAUSED, sets=(PREEMPTED, INTERRUPTED), unless=(STOPPING,)),
    # It waits for its children, after an attempt that returned or failed for good.
    Transition("waits for its children", (RUNNING,), WAITING, may_set=(FINALIZING,), clears=(FINALIZING,)),
    Transition(
        "finalizes after its last child",
        (WAITING,),
        BLOCKED,
        sets=(INTERRUPTED,),
        may_set=(HELD,),
        needs=(FINALIZING,),
        unless=(STOPPING,),
    ),
    Transition("runs its hook after its last child", (WAITING,), PENDING, sets=(INTERRUPTED,), needs=(STOPPING,)),
    # It is asked to stop, or its key goes to another task.
    Transition("is asked to stop", (RUNNING,), sets=(STOPPING,), unless=(STOPPING,)),
    Transition("is asked to stop after its children", NOT_RUNNING, WAITING, sets=(STOPPING,), unless=(STOPPING,)),
    Transition("is asked to stop and has a hook", NOT_RUNNING, PENDING, sets=(STOPPING,), unless=(STOPPING,)),
    Transition("is replaced", NOT_RUNNING, sets=(STOPPING,), unless=(STOPPING,)),
    Transition("gives its key to an added run", (*NOT_RUNNING, RUNNING), sets=(RUNS_AGAIN,), unless=(RUNS_AGAIN,)),
    Transition("takes its key back", (*NOT_RUNNING, RUNNING), clears=(RUNS_AGAIN,), needs=(RUNS_AGAIN,)),
    # It ends.
    Transition("completes", (RUNNING, WAITING), Ending.COMPLETED, unless=(STOPPING,)),
    Transition("fails for good", (RUNNING, WAITING), Ending.FAILED),
    Transition("fails after its last retry or crash", (RUNNING, WAITING), Ending.DEAD_LETTER),
    Transition("is cancelled", (*NOT_RUNNING, RUNNING), Ending.CANCELLED),
    Transition("is superseded", (*NOT_RUNNING, RUNNING), Ending.SUPERSEDED),
    Transition("passes its deadline, or expires with its parent", IDLE, Ending.EXPIRED),
    Transition("depends on a task that failed", (BLOCKED, PAUSED), Ending.DEPENDENCY_FAILED, unless=(STOPPING,)),
)


def transitions(before: State, after: State, *, used_retry: bool = False) -> list[Transition]:
    """Return the transitions that turn one state into the other; none if the table does not allow the change."""
    before, after = before.seen(), after.seen()
    return [each for each in TRANSITIONS if each.uses_retry == used_retry and each.leads(before, after)]
