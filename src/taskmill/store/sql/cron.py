"""The stored states of cron tasks, kept consistent with the rows of their firings.

Each function runs inside the writer's transaction, and :mod:`taskmill.policy.cron` decides. Retries and restarts happen
in the task row, as for any task; here they are only recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

from taskmill.core.cron_port import CronRow
from taskmill.errors import DuplicateTask
from taskmill.model.attempt import Return, TryAgain
from taskmill.model.commit import Commit
from taskmill.model.cron import CronState, Firing
from taskmill.model.status import Ending
from taskmill.model.task import Claimed
from taskmill.model.turn import Judged
from taskmill.policy.cron import decisions
from taskmill.policy.verdicts import is_crash
from taskmill.store.sql.connection import Connection, encoded
from taskmill.store.sql.rows import EndingRow
from taskmill.store.sql.schedules import cron_rows, read_cron
from taskmill.store.sql.statements import SQL


def _rows_of(connection: Connection, ids: Iterable[int]) -> list[CronRow]:
    """Return the cron tasks whose current firing is one of these tasks."""
    return read_cron(connection, "cron_of_tasks", encoded(list(ids)))


def write(connection: Connection, changed: Sequence[tuple[CronState, int | None]], *, fired: bool = False) -> None:
    """Store states, each with the id of its current firing; ``fired`` is True for new firings."""
    if changed:
        values = [(state.name, encoded(state), task_id, int(fired)) for state, task_id in changed]
        connection.execute(SQL["write_cron"], (encoded(values),))


def _change(
    connection: Connection, ids: Iterable[int], commit: Commit, change: Callable[[CronState, int], CronState]
) -> None:
    """Apply ``change`` to the states of the cron tasks whose firings are among these tasks."""
    changed: list[tuple[CronState, int | None]] = []
    found = _rows_of(connection, ids)
    if found:
        # Read, change and write must not interleave with another node's.
        connection.be_alone()
    for row in found:
        if row.state.firing is None or row.task_id is None:
            continue
        state = change(row.state, row.task_id)
        if state != row.state:
            changed.append((state, None if state.firing is None else row.task_id))
    write(connection, changed)
    commit.crons += [state for state, _ in changed]


def claimed(connection: Connection, tasks: Sequence[Claimed], now: int, commit: Commit) -> None:
    """Record attempts that start. Attempts that only run an ``on_cancel`` hook do not count."""
    firings = {task.id: task for task in tasks if task.cron is not None and task.stop is None}
    if not firings:
        return

    def change(state: CronState, id: int) -> CronState:
        if firings[id].finalizes:
            # The run started with its handler. Keep its start time, so that occurrences passed since then still run.
            return at_work(state)
        if state.retry_at is not None:
            return decisions.attempted_again(state, now)
        return decisions.claimed(state, now) if firings[id].attempt == 1 else state

    _change(connection, firings, commit, change)


def at_work(state: CronState) -> CronState:
    """Return the state with a firing that does not wait for a retry."""
    if state.firing is None:
        return state
    return msgspec.structs.replace(state, firing=msgspec.structs.replace(state.firing, retry_at=None))


def returned(connection: Connection, verdicts: Iterable[Judged], now: int, commit: Commit) -> None:
    """Record attempts that failed or were interrupted, and whose tasks run again."""
    retries = {
        each.task.id: (each.verdict, each.ended_at)
        for each in verdicts
        if each.task.cron is not None and isinstance(each.verdict, TryAgain | Return)
    }
    if not retries:
        return

    def change(state: CronState, id: int) -> CronState:
        verdict, ended_at = retries[id]
        if isinstance(verdict, TryAgain):
            return decisions.failed(state, ended_at, 0 if verdict.due_at is None else verdict.due_at - ended_at)
        return decisions.interrupted(state, now if verdict.due_at is None else verdict.due_at)

    _change(connection, retries, commit, change)


def interrupted(connection: Connection, ids: Iterable[int], now: int, commit: Commit) -> None:
    """Record that the process of these tasks died, and that they run again."""
    _change(connection, ids, commit, lambda state, _: decisions.interrupted(state, now))


def follow(connection: Connection, endings: Iterable[EndingRow], now: int, commit: Commit) -> None:
    """Record the ends of firings among these endings."""
    ended = {row.id: row for row in endings}

    def change(state: CronState, id: int) -> CronState:
        row = ended[id]
        match row.ending:
            case Ending.COMPLETED:
                return decisions.succeeded(state, now)
            case Ending.CANCELLED | Ending.SUPERSEDED:
                return decisions.cancelled(state)
            case Ending.DEAD_LETTER if is_crash(row.error):
                return decisions.crashed_too_often(state)
            case _:
                return decisions.gave_up(state, now)

    _change(connection, ended, commit, change)


def rejoin(connection: Connection, id: int, name: str | None, now: int) -> None:
    """Make a revived dead letter a firing of its cron task again, so that it never overlaps with another firing."""
    found = [] if name is None else cron_rows(connection, [name])
    if not found:
        return
    (row,) = found
    if row.task_id is not None:
        raise DuplicateTask(f"cron task {name!r} is active already, as task {row.task_id}", existing_id=row.task_id)
    occurrence = row.state.ran[-1].last if row.state.ran else now
    state = msgspec.structs.replace(row.state, firing=Firing(occurrence=occurrence, retry_at=now))
    write(connection, [(state, id)])


def rewind(connection: Connection, now: int, step: int) -> None:
    """Adjust all states after the wall clock was set back by ``step`` ms, to ``now``."""
    changed: list[tuple[CronState, int | None]] = []
    for row in cron_rows(connection):
        state = decisions.rewound(row.state, now, step)
        if state != row.state:
            changed.append((state, row.task_id))
    write(connection, changed)
    if step > decisions.LONGEST_DELAY_MS:
        connection.execute(SQL["rewind_retries"], (step,))
