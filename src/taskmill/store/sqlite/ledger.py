"""Committing what happened: turns, endings, cancellations, recovery, revival, pruning.

Each function runs inside the writer's transaction. Every ending passes through :func:`end_tasks`, so that history,
tags and tally can never disagree.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import nsmallest
from typing import Any

import msgspec

from taskmill.errors import DuplicateTask
from taskmill.model.retention import PruneRule
from taskmill.model.stages import Claimed, Described, Lane, Place
from taskmill.model.status import Ending, Status
from taskmill.model.verdict import End, Return, TryAgain
from taskmill.policy.verdicts import crash_message, quarantined
from taskmill.ports import UNREADABLE_ROW, CancelResult, Judged, Opened, Recovery, Turn, TurnResult
from taskmill.store.sqlite.connection import Connection
from taskmill.store.sqlite.queries import load

SQL = {**load("queue.sql"), **load("ledger.sql"), **load("retention.sql")}

FRONT = 512
"""How many places of a lane are read at once."""
BITE = 500
"""How many tasks upkeep moves in one transaction, so that nobody waits long behind it."""

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode
_decode_ids = msgspec.json.Decoder(list[int]).decode
_decode_claimed = msgspec.json.Decoder(list[Claimed]).decode
_decode_described = msgspec.json.Decoder(list[Described]).decode
_decode_lanes = msgspec.json.Decoder(list[Lane]).decode
_decode_places = msgspec.json.Decoder(list[tuple[int, int]]).decode
_decode_fronts = msgspec.json.Decoder(list[tuple[str, int, list[Place]]]).decode
_decode_held = msgspec.json.Decoder(list[tuple[int, str | None, int]]).decode
_decode_opened = msgspec.json.Decoder(list[Opened]).decode
_decode_stops = msgspec.json.Decoder(list[tuple[int, int, str]]).decode
_decode_orphans = msgspec.json.Decoder(list[tuple[int, int, int, str | None]]).decode

UNREADABLE = (msgspec.MsgspecError, UnicodeError)
"""What decoding a damaged row raises."""

EndingRow = tuple[int, Ending, int, int | None, str | None, str | None]
"""id, ending, ended_at, duration_ms, result, error"""

ReturnRow = tuple[int, Status, int, int, int | None, str | None, bool]
"""id, status, retries, crashes, due_at, last_error, interrupted"""


def _json(value: Any) -> str:
    return _encode(value).decode()


def _one(connection: Connection, statement: str, *parameters: Any) -> Any:
    return connection.execute(SQL[statement], parameters).fetchone()[0]


def commit_turn(connection: Connection, turn: Turn) -> TurnResult:
    result = TurnResult()
    if turn.progress:
        connection.execute(SQL["report_progress"], (_json(turn.progress),))
    if turn.judged:
        _commit_verdicts(connection, turn, result)
    if turn.returns:
        connection.execute(
            SQL["return_to_queue"],
            (_json([(t.id, Status.PENDING, t.retries, t.crashes, t.due_at, None, False) for t in turn.returns]),),
        )
    if turn.promote:
        ids = _one(connection, "due", turn.now, BITE)
        connection.execute(SQL["promote"], (ids,))
        result.promoted = ids != "[]"
    if turn.expire:
        ids = _decode_ids(_one(connection, "expired", turn.now, BITE))
        result.expired = describe(connection, ids)
        end_tasks(connection, [(id, Ending.EXPIRED, turn.now, None, None, None) for id in ids], turn.now)
    if turn.claims:
        _claim(connection, turn, result)
    refill = turn.refill
    if turn.survey or result.promoted:
        result.lanes = refill = _decode_lanes(_one(connection, "lanes"))
        result.stops = _decode_stops(_one(connection, "stop_requests"))
    if turn.survey or turn.promote:
        result.next_due = _one(connection, "next_due")
    if turn.survey or turn.expire:
        result.next_expiry = _one(connection, "next_expiry")
    if refill:
        passed_over = _json(turn.pass_over) if turn.pass_over else None
        found = _decode_fronts(_one(connection, "front_of_lanes", _json(refill), FRONT, passed_over))
        result.fronts = {Lane(group, priority): places for group, priority, places in found}
    return result


def _commit_verdicts(connection: Connection, turn: Turn, result: TurnResult) -> None:
    if _all_just_ended(connection, turn):
        return
    tokens = [(judged.task.id, judged.task.attempt) for judged in turn.judged]
    held = {id: (stop, rerun) for id, stop, rerun in _decode_held(_one(connection, "held_tokens", _json(tokens)))}
    ending: list[Judged] = []
    returns: list[ReturnRow] = []
    for judged in turn.judged:
        task = judged.task
        stop, rerun = held.get(task.id, (None, False))
        if task.id not in held or (stop is not None and not judged.stopped):
            result.lost[(task.id, task.attempt)] = stop
            continue
        match judged.verdict:
            case End() if rerun and not judged.stopped:
                result.restarted.append(task)
            case End():
                ending.append(judged)
            case TryAgain(error, due_at):
                status = Status.PENDING if due_at is None else Status.SCHEDULED
                returns.append((task.id, status, task.retries + 1, task.crashes, due_at, error, False))
            case Return(crashed, error):
                crashes = task.crashes + crashed
                returns.append((task.id, Status.PENDING, task.retries, crashes, task.due_at, error, True))
    if ending:
        _end_judged(connection, ending, turn.now, result)
    if returns:
        connection.execute(SQL["return_to_queue"], (_json(returns),))
    if result.restarted:
        connection.execute(SQL["start_over"], (_json([task.id for task in result.restarted]), turn.now))


def _all_just_ended(connection: Connection, turn: Turn) -> bool:
    """The way of almost every turn, kept short: all tasks end, and nobody wanted anything else of them meanwhile."""
    rows: list[tuple[object, ...]] = []
    for judged in turn.judged:
        verdict = judged.verdict
        if judged.stopped or not isinstance(verdict, End):
            return False
        task = judged.task
        rows.append(
            (task.id, verdict.ending, turn.now, judged.duration_ms, verdict.result, verdict.error, task.attempt)
        )
    connection.execute("SAVEPOINT endings")
    if connection.execute(SQL["record_endings"], (_json(rows),)).rowcount != len(rows):
        connection.execute("ROLLBACK TO endings")
        connection.execute("RELEASE endings")
        return False
    connection.execute("RELEASE endings")
    tagged = any(judged.task.tags for judged in turn.judged)
    _leave_active(connection, _json([row[0] for row in rows]), _sums(turn.judged), tagged=tagged)
    return True


def _end_judged(connection: Connection, ending: Sequence[Judged], now: int, result: TurnResult) -> None:
    rows = [
        (judged.task.id, verdict.ending, now, judged.duration_ms, verdict.result, verdict.error)
        for judged in ending
        if isinstance(verdict := judged.verdict, End)
    ]
    result.opened = end_tasks(
        connection,
        rows,
        now,
        sums=_sums(ending),
        tagged=any(judged.task.tags for judged in ending),
        gates=any(judged.stopped for judged in ending),
    )


def end_tasks(
    connection: Connection,
    endings: Sequence[EndingRow],
    now: int,
    *,
    sums: str | None = None,
    tagged: bool = True,
    gates: bool = True,
) -> list[Opened]:
    """Move active tasks to history with their tags, count them, and let their successors go.

    A caller that knows the tasks saves some reading: ``sums`` for the tally, whether any is ``tagged``, and whether
    anyone may wait behind their ``gates``.
    """
    if not endings:
        return []
    ids = _json([row[0] for row in endings])
    connection.execute(SQL["record_endings"], (_json(endings),))
    _leave_active(connection, ids, sums or _one(connection, "sums_of_endings", ids), tagged=tagged)
    opened = _decode_opened(_one(connection, "gated", ids)) if gates else []
    if opened:
        connection.execute(SQL["open_gates"], (ids, now))
    return opened


def _leave_active(connection: Connection, ids: str, sums: str, *, tagged: bool) -> None:
    """What is in history now leaves the active table, and is counted."""
    connection.execute(SQL["delete_active"], (ids,))
    connection.execute(SQL["tally"], (sums,))
    if tagged and connection.execute(SQL["move_tags"], (ids,)).rowcount:
        connection.execute(SQL["delete_active_tags"], (ids,))


def _sums(judged: Iterable[Judged]) -> str:
    """What these endings add to the tally."""
    sums: dict[tuple[str, str, Ending], list[int]] = {}
    for one in judged:
        if isinstance(one.verdict, End):
            total = sums.setdefault((one.task.type, one.task.group, one.verdict.ending), [0, 0])
            total[0] += 1
            total[1] += one.duration_ms
    return _json([(*key, *total) for key, total in sums.items()])


def describe(connection: Connection, ids: Sequence[int]) -> list[Described]:
    """What events tell about these active tasks; of one whose row is damaged, no more than its id."""
    try:
        return _decode_described(_one(connection, "described", _json([(id,) for id in ids])))
    except UNREADABLE:
        if len(ids) == 1:
            return [_unreadable(ids[0])]
        return [task for id in ids for task in describe(connection, [id])]


def _unreadable(id: int) -> Described:
    return Described(
        id=id,
        type="",
        key=None,
        label=None,
        group="",
        priority=0,
        tags=None,
        created_at=0,
        status=Status.PENDING,
        stop=None,
    )


def _claim(connection: Connection, turn: Turn, result: TurnResult) -> None:
    ids = _json(turn.claims)
    damaged: list[int] = []
    rows = _one(connection, "claimable", ids, turn.now)
    try:
        result.claimed = _decode_claimed(rows)
    except UNREADABLE:
        # One damaged row must not hold up the others: it is found by reading them one by one.
        for id in turn.claims:
            try:
                result.claimed += _decode_claimed(_one(connection, "claimable", _json([id]), turn.now))
            except UNREADABLE:
                damaged.append(id)
    connection.execute(SQL["claim"], (ids, turn.now))
    if damaged:
        result.damaged = describe(connection, damaged)
        rows = [(id, Ending.DEAD_LETTER, turn.now, None, None, UNREADABLE_ROW) for id in damaged]
        end_tasks(connection, rows, turn.now)
    if len(result.claimed) > 1:
        place = {id: position for position, id in enumerate(turn.claims)}
        result.claimed.sort(key=lambda task: place[task.id])


def cancel(connection: Connection, ids: Sequence[int], now: int) -> CancelResult:
    """End what waits; ask what runs to stop."""
    found = describe(connection, ids)
    # A task that was asked to stop and lost its process waits for its hook; it is stopping already.
    waiting = [task for task in found if task.status is not Status.RUNNING and task.stop is None]
    running = [task.id for task in found if task.status is Status.RUNNING or task.stop is not None]
    end_tasks(connection, [(task.id, Ending.CANCELLED, now, None, None, None) for task in waiting], now)
    if running:
        connection.execute(SQL["request_stop"], (_json(running), "cancel"))
    return CancelResult(ended=waiting, stopping=running)


ENDING_OF_STOP = {None: Ending.DEAD_LETTER, "cancel": Ending.CANCELLED, "supersede": Ending.SUPERSEDED}
"""How a task that crashed too often ends, by what it had been asked."""


def recover(connection: Connection, now: int) -> Recovery:
    """Return the tasks of a dead dispatcher to the queue, except those that keep killing their process."""
    recovery = Recovery()
    returns: list[ReturnRow] = []
    poison: list[EndingRow] = []
    for id, retries, crashes_before, stop in _decode_orphans(_one(connection, "orphans")):
        crashes = crashes_before + 1
        if quarantined(crashes, stopping=stop is not None):
            ending = ENDING_OF_STOP[stop]
            poison.append((id, ending, now, None, None, crash_message(crashes)))
        else:
            returns.append((id, Status.PENDING, retries, crashes, None, None, True))
    if poison:
        recovery.quarantined = describe(connection, [row[0] for row in poison])
        end_tasks(connection, poison, now)
    if returns:
        connection.execute(SQL["return_to_queue"], (_json(returns),))
        recovery.returned = len(returns)
    return recovery


def revive(connection: Connection, id: int, now: int) -> Described | None:
    """Bring a dead letter back to the queue under its own id."""
    row = connection.execute(
        "SELECT type, group_name, duration_ms, key FROM taskmill_history WHERE id = ? AND ending = 'dead_letter'",
        (id,),
    ).fetchone()
    if row is None:
        return None
    type, group, duration_ms, key = row
    holder = connection.execute(SQL["key_holder"], (type, key)).fetchone()
    if holder is not None:
        raise DuplicateTask(f"{type}: task {holder[0]} holds the key {key!r} now", existing_id=holder[0])
    connection.execute(SQL["revive"], (id, now))
    connection.execute(
        "INSERT INTO taskmill_task_tag SELECT name, value, task_id FROM taskmill_history_tag WHERE task_id = ?",
        (id,),
    )
    connection.execute(SQL["forget_ending_tags"], (id,))
    connection.execute(SQL["forget_ending"], (id,))
    connection.execute(SQL["untally"], (type, group, "dead_letter", duration_ms))
    return describe(connection, [id])[0]


def prune(connection: Connection, rules: Sequence[PruneRule], now: int, limit: int) -> int:
    """Delete at most ``limit`` rows of history that retention no longer keeps."""
    kept: dict[str, int] = _decode(_one(connection, "kept_by_ending"))
    left = limit
    for rule in rules:
        ids: set[int] = set()
        surplus = 0 if rule.max_count is None else sum(kept.get(ending, 0) for ending in rule.endings) - rule.max_count
        if surplus > 0:
            ids.update(_oldest(connection, rule.endings, min(surplus, left)))
        if rule.max_age_ms is not None:
            for ending in rule.endings:
                ids.update(_decode_ids(_one(connection, "older_of_ending", ending, left, now - rule.max_age_ms)))
        if ids:
            given = _json(sorted(ids)[:left])
            connection.execute(SQL["uncount"], (given,))
            connection.execute(SQL["delete_history_tags"], (given,))
            left -= connection.execute(SQL["delete_history"], (given,)).rowcount
        if left <= 0:
            break
    return limit - left


def _oldest(connection: Connection, endings: Sequence[Ending], count: int) -> list[int]:
    """The oldest ended tasks of several endings taken together."""
    candidates: list[tuple[int, int]] = []
    for ending in endings:
        candidates += _decode_places(_one(connection, "oldest_of_ending", ending, count))
    return [id for _, id in nsmallest(count, candidates)]
