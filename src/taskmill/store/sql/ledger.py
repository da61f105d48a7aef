"""Committing what happened: turns and cancellations.

Each function runs inside the writer's transaction. Endings and what follows from them are committed by
:mod:`taskmill.store.sql.endings`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from taskmill.model.outcome import StopReason
from taskmill.model.stages import Claimed, Lane, Place
from taskmill.model.status import Ending, Status
from taskmill.model.verdict import End, MakeWay, Return, TryAgain, Wait
from taskmill.policy.ranking import front_size, rank
from taskmill.ports import UNREADABLE_ROW, CancelResult, Effects, Judged, SeriesChange, Turn, TurnResult
from taskmill.store.sql import cluster, controls, cron, families, machine, paused_time, preempting, series
from taskmill.store.sql.alone import just_ends
from taskmill.store.sql.connection import Connection
from taskmill.store.sql.describing import UNREADABLE, describe
from taskmill.store.sql.endings import Ties, end_tasks, leave_active
from taskmill.store.sql.expiring import expire, expire_among
from taskmill.store.sql.json_sql import encoded, one
from taskmill.store.sql.releasing import note_queued, promote
from taskmill.store.sql.rows import EndingRow
from taskmill.store.sql.statements import SQL

BITE = 500
"""How many tasks upkeep moves in one transaction, so that nobody waits long behind it."""


_decode = msgspec.json.Decoder().decode
_decode_claimed = msgspec.json.Decoder(list[Claimed]).decode
_decode_one_claimed = msgspec.json.Decoder(Claimed).decode
_decode_raw = msgspec.json.Decoder(list[msgspec.Raw]).decode
_decode_fronts = msgspec.json.Decoder(list[tuple[str, int, str, bool, list[Place]]]).decode
_decode_held = msgspec.json.Decoder(list[tuple[int, str | None, bool, Ties]], strict=False).decode

_NOT_HELD = (None, False, Ties())

ReturnRow = tuple[int, Status, int, int, int | None, str | None, bool | None, int]
"""id, status, retries, crashes, due_at, last_error, interrupted (None keeps it as it was), preempted"""


def _one(connection: Connection, statement: str, *parameters: Any) -> Any:
    return one(connection, SQL[statement], *parameters)


def commit_turn(connection: Connection, turn: Turn) -> TurnResult:
    result = TurnResult()
    if turn.progress:
        connection.execute(SQL["report_progress"], (encoded(turn.progress),))
    if turn.judged:
        machine.note_io(connection, turn.judged)
        _commit_verdicts(connection, turn, result)
        machine.learn_io(connection, turn.judged, result.lost)
    if turn.returns:
        connection.execute(SQL["unclaim"], (encoded([(task.id, task.attempt) for task in turn.returns]),))
    if turn.at_work is not None:
        connection.execute(SQL["unclaim_others"], (encoded(turn.at_work),))
    if turn.promote:
        promote(connection, turn.now, BITE, result.effects)
    if turn.resume_preempted or turn.resume_eased:
        connection.be_alone()
        causes = ((controls.FOR_A_TASK, turn.resume_preempted), (controls.FOR_PRESSURE, turn.resume_eased))
        paused_time.bring_back(connection, [cause for cause, is_over in causes if is_over], turn.now, result.effects)
    if turn.expire:
        connection.be_alone()
        if paused_time.freeze(connection, turn.now):
            expire(connection, turn.now, BITE, result.effects)
    if turn.skip:
        series.skip_passed(connection, turn.now, BITE, result.effects)
    version, is_owed = controls.version(connection)
    if is_owed:
        paused_time.settle_released(connection, result.effects)
    _start(connection, turn, result, version, is_owed=is_owed)
    if turn.preempt is not None:
        preempting.preempt(connection, turn.preempt, result)
    _look(connection, turn, result, is_owed=is_owed)
    return result


def _start(connection: Connection, turn: Turn, result: TurnResult, version: int, *, is_owed: bool) -> None:
    """Claim what was planned, if it was planned by the rules that hold.

    Where paused time ``is_owed``, what starts is given it first, and the places in the store are not the true ones yet.
    """
    claims = [*turn.hooks]
    if turn.controls_version in (None, version):
        wanted = turn.claims if turn.admission is None else cluster.admit(connection, turn.admission, turn, result)
        claims += [*wanted, *_released_first(turn, result)]
    else:
        result.controls = controls.read(connection)
    if is_owed and claims:
        paused_time.settle(connection, claims)
    elif turn.lanes:
        claims = _claim_fronts(connection, claims, turn, result)
    if claims:
        _claim(connection, claims, turn.now, result)
    cron.claimed(connection, result.claimed, turn.now, result.effects)
    if result.effects.released:
        started = {task.id for task in result.claimed}
        result.effects.released = [task for task in result.effects.released if task.id not in started]
    if turn.meters and result.claimed:
        among_nodes = turn.admission is not None
        controls.take_from(connection, turn.meters, result.claimed, turn.now, result, among_nodes=among_nodes)


def _look(connection: Connection, turn: Turn, result: TurnResult, *, is_owed: bool) -> None:
    """See what waits, as far as the turn wants to know."""
    refill = turn.refill
    if turn.survey:
        cluster.survey(connection, turn, result)
        refill = result.lanes or ()
    elif turn.promote:
        result.next_due = _one(connection, "next_due")
    if turn.expire and not turn.survey:
        result.next_expiry = _one(connection, "next_expiry")
    if turn.skip and not turn.survey:
        result.next_beat = _one(connection, "next_beat")
    if refill:
        result.front_size = front_size(max(turn.lanes_in_sight, len(refill)))
    if refill and is_owed:
        result.fronts = paused_time.fronts(connection, refill, result.front_size, turn.now)
    elif refill:
        found = _decode_fronts(_one(connection, "front_of_lanes", encoded(refill), result.front_size, turn.now))
        result.fronts = {Lane(group, urgency, type, renewed): places for group, urgency, type, renewed, places in found}


class _Verdicts(msgspec.Struct):
    """The verdicts of a turn, sorted by what is done about them."""

    ends: list[Judged] = msgspec.field(default_factory=list[Judged])
    fails_with_children: list[Judged] = msgspec.field(default_factory=list[Judged])
    returns: list[ReturnRow] = msgspec.field(default_factory=list[ReturnRow])
    returned: list[Judged] = msgspec.field(default_factory=list[Judged])
    waits: list[tuple[int, str | None, bool]] = msgspec.field(default_factory=list[tuple[int, "str | None", bool]])

    def sort(self, judged: Judged, *, has_children: bool) -> None:
        task = judged.task
        if isinstance(judged.verdict, TryAgain | Return | MakeWay):
            self.returned.append(judged)
        match judged.verdict:
            case Wait(None):
                self.waits.append((task.id, None, False))
            case Wait(result, finalizes):
                self.waits.append((task.id, _completed(result, judged), finalizes))
            case End(Ending.COMPLETED, result) if has_children:
                self.waits.append((task.id, _completed(result, judged), False))
            case End() if has_children:
                self.fails_with_children.append(judged)
            case End():
                self.ends.append(judged)
            case TryAgain(error, due_at):
                status = Status.PENDING if due_at is None else Status.SCHEDULED
                if has_children and task.finalizes:
                    # The children of a finalize that failed come first, as if it had not.
                    status = Status.WAITING
                self.returns.append((task.id, status, task.retries + 1, task.crashes, due_at, error, False, 0))
            case Return(crashed, error, due_at, started):
                status = Status.PENDING if due_at is None else Status.SCHEDULED
                if has_children and (task.finalizes or judged.stopped):
                    # Children come before what is left to do: a finalize, or a hook.
                    status = Status.WAITING
                due_at = task.due_at if due_at is None else due_at
                interrupted = True if started else None
                crashes = task.crashes + crashed
                self.returns.append((task.id, status, task.retries, crashes, due_at, error, interrupted, 0))
            case MakeWay(for_pressure):
                waits = has_children and task.finalizes
                status = Status.WAITING if waits else Status.PAUSED
                cause = controls.FOR_PRESSURE if for_pressure else controls.FOR_A_TASK
                away = 0 if waits else cause
                self.returns.append((task.id, status, task.retries, task.crashes, task.due_at, None, True, away))


def _completed(result: str | None, judged: Judged) -> str:
    return encoded((Ending.COMPLETED, result, None, judged.duration_ms))


def _commit_verdicts(connection: Connection, turn: Turn, result: TurnResult) -> None:
    if _all_just_ended(connection, turn):
        return
    connection.be_alone()
    tokens = [(judged.task.id, judged.task.attempt) for judged in turn.judged]
    held = {row[0]: row[1:] for row in _decode_held(_one(connection, "held_tokens", encoded(tokens)))}
    verdicts = _Verdicts()
    for judged in turn.judged:
        task = judged.task
        stop, has_children, _ = held.get(task.id, _NOT_HELD)
        if task.id not in held or (stop is not None and not judged.stopped):
            result.lost[(task.id, task.attempt)] = stop
        else:
            verdicts.sort(judged, has_children=has_children)
    if verdicts.returns:
        connection.execute(SQL["return_to_queue"], (encoded(verdicts.returns), turn.now))
        cron.returned(connection, verdicts.returned, turn.now, result.effects)
        _note_changed_lanes(connection, turn, verdicts, result)
    if verdicts.ends:
        ties = Ties(*map(any, zip(*(held[judged.task.id][2] for judged in verdicts.ends), strict=True)))
        _end_judged(connection, verdicts.ends, ties, turn.now, result)
    if verdicts.waits or verdicts.fails_with_children:
        _leave_to_children(connection, verdicts, turn.now, result)


def _note_changed_lanes(connection: Connection, turn: Turn, verdicts: _Verdicts, result: TurnResult) -> None:
    """A task that became more urgent while it ran, because of another that waits for it, returns to another lane."""
    before = {judged.task.id: judged.task.urgency for judged in turn.judged}
    returned = Effects()
    note_queued(connection, [row[0] for row in verdicts.returns], returned)
    result.effects.released += [task for task in returned.released if task.urgency != before[task.id]]


def _leave_to_children(connection: Connection, verdicts: _Verdicts, now: int, result: TurnResult) -> None:
    endings: list[EndingRow] = []
    if verdicts.waits:
        result.waiting, endings = families.await_children(connection, verdicts.waits, now, result.effects)
    for judged in verdicts.fails_with_children:
        endings += _fail_with_children(connection, judged, now, result)
    end_tasks(connection, endings, now, result.effects)


def _fail_with_children(connection: Connection, judged: Judged, now: int, result: TurnResult) -> list[EndingRow]:
    """A task that ends without success takes its children with it, and ends after them."""
    verdict, task = judged.verdict, judged.task
    assert isinstance(verdict, End)  # noqa: S101 - sorted by the caller
    families.attempt_over(connection, task.id)
    result.waiting[task.id] = task.family.children if task.family is not None else 0
    outcome = (verdict.ending, verdict.result, verdict.error, judged.duration_ms)
    return families.fail(connection, task.id, outcome, now, result.effects)


def _all_just_ended(connection: Connection, turn: Turn) -> bool:
    """The way of almost every turn, kept short: all tasks end, and nobody wanted anything else of them meanwhile."""
    if not all(map(just_ends, turn.judged)):
        return False
    rows = [
        (each.task.id, verdict.ending, turn.now, each.duration_ms, verdict.result, verdict.error, each.task.attempt)
        for each in turn.judged
        if isinstance(verdict := each.verdict, End)
    ]
    if not connection.execute_if_all(SQL["record_endings"], (encoded(rows), None, None), len(rows)):
        return False
    tagged = any(judged.task.tags for judged in turn.judged)
    leave_active(connection, encoded([row[0] for row in rows]), _sums(turn.judged), tagged=tagged)
    return True


def _end_judged(connection: Connection, ending: Sequence[Judged], ties: Ties, now: int, result: TurnResult) -> None:
    rows = [
        EndingRow(judged.task.id, verdict.ending, now, judged.duration_ms, verdict.result, verdict.error)
        for judged in ending
        if isinstance(verdict := judged.verdict, End)
    ]
    tagged = any(judged.task.tags for judged in ending)
    end_tasks(connection, rows, now, result.effects, sums=_sums(ending), tagged=tagged, told=True, ties=ties)


def _sums(judged: Iterable[Judged]) -> str:
    """What these endings add to the tally."""
    sums: dict[tuple[str, str, Ending], list[int]] = {}
    for each in judged:
        if isinstance(each.verdict, End):
            total = sums.setdefault((each.task.type, each.task.group, each.verdict.ending), [0, 0])
            total[0] += 1
            total[1] += each.duration_ms
    return encoded([(*key, *total) for key, total in sums.items()])


def _released_first(turn: Turn, result: TurnResult) -> list[int]:
    """Those of the tasks that this turn has released which may start at once, since nothing else waits."""
    if not turn.spare or not result.effects.released:
        return []
    ready = [task for task in result.effects.released if task.due_at is None]
    ready.sort(key=lambda task: rank(task.lane, task.place))
    return [task.id for task in ready[: turn.spare]]


def _claim_fronts(connection: Connection, claims: Sequence[int], turn: Turn, result: TurnResult) -> list[int]:
    """Claim as many of each lane as were asked for, whichever come first by now; returns the claims of other lanes.

    A task that was about to start when it was stopped is in no lane any longer: its hook is claimed by its id.
    """
    hooks = set(turn.hooks)
    lanes = {id: lane for id, lane in (turn.lanes or {}).items() if id not in hooks}
    wanted: dict[Lane, list[int]] = {}
    for lane, queued_at in (lanes[id] for id in claims if id in lanes):
        wanted.setdefault(lane, []).append(queued_at)
    if wanted:
        # What has left the lane is in the way for as long as somebody looks at the past: nobody begins before it.
        fronts = encoded([(*lane, len(queued), min(queued)) for lane, queued in wanted.items()])
        result.claimed = _decode_claimed(_one(connection, "claim_fronts", fronts, turn.now))
    return [id for id in claims if id not in lanes]


def _claim(connection: Connection, claims: Sequence[int], now: int, result: TurnResult) -> None:
    ids = encoded(claims)
    damaged: list[int] = []
    rows = _one(connection, "claimable", ids, now)
    try:
        result.claimed += _decode_claimed(rows)
    except UNREADABLE:
        # One damaged row must not hold up the others. They are decoded one by one and not read again: with some engines
        # looking and claiming are one statement.
        for row in _decode_raw(rows.encode("utf-8", "surrogateescape")):
            try:
                result.claimed.append(_decode_one_claimed(row))
            except UNREADABLE:
                damaged.append(int(bytes(_decode_raw(row)[0])))
    connection.execute(SQL["claim"], (ids, now))
    if damaged:
        connection.be_alone()
        rows = [EndingRow(id, Ending.DEAD_LETTER, now, None, None, UNREADABLE_ROW) for id in damaged]
        end_tasks(connection, rows, now, result.effects)
    if len(result.claimed) > 1:
        place = {id: position for position, id in enumerate(claims)}
        result.claimed.sort(key=lambda task: place.get(task.id, 0))


def cancel(connection: Connection, ids: Sequence[int], now: int) -> CancelResult:
    """End what waits; ask what runs to stop; descendants first."""
    result = CancelResult()
    expire_among(connection, ids, now, result.effects)
    result.ids = [task.id for task in describe(connection, ids)]
    end_tasks(
        connection,
        families.stop_trees(connection, result.ids, StopReason.CANCEL, now, result.effects),
        now,
        result.effects,
    )
    return result


def cancel_series(connection: Connection, id: int, now: int) -> SeriesChange:
    """End a recurring series and its active occurrence."""
    change, endings = series.cancel(connection, id, now)
    end_tasks(connection, endings, now, change.effects)
    return change
