"""Claim the tasks that a turn starts, inside its transaction.

A claim takes only rows that are still pending and have not expired. It raises their attempt numbers: the tokens.
Nothing is claimed if the controls have changed since the tasks were chosen.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec
from msgspec.structs import astuple

from taskmill.model.commit import UNREADABLE_ROW
from taskmill.model.status import Ending
from taskmill.model.task import Claimed, Lane
from taskmill.model.turn import Rate, Starts, Turn, TurnResult
from taskmill.store.sql import cluster, controls, cron, load, paused_time
from taskmill.store.sql.connection import Connection, Statement, encoded, one
from taskmill.store.sql.endings import end_tasks
from taskmill.store.sql.rows import UNREADABLE, EndingRow
from taskmill.store.sql.statements import SQL

_decode_claimed = msgspec.json.Decoder(list[Claimed]).decode
_decode_one_claimed = msgspec.json.Decoder(Claimed).decode
_decode_raw = msgspec.json.Decoder(list[msgspec.Raw]).decode


def claim_if_unchanged(connection: Connection, turn: Turn, result: TurnResult) -> bool:
    """Claim from lanes by one statement that also checks the controls; return False if :func:`start` has to decide.

    Paused time is owed only after a change of the controls, so nothing is owed that the plan does not know of.
    """
    starts = turn.starts
    if not starts.lanes or len(starts.lanes) < len(starts.claims) or turn.look.survey or result.commit.released:
        return False
    if starts.hooks or starts.rates or starts.admission is not None or starts.owes_paused_time:
        return False
    _claim_fronts(connection, starts.claims, starts, result, starts.controls_version)
    if not result.claimed:
        return False
    cron.claimed(connection, result.claimed, result.now, result.commit)
    return True


def start(connection: Connection, starts: Starts, result: TurnResult, version: int, *, is_owed: bool) -> None:
    """Claim the chosen tasks, unless the controls have changed since they were chosen.

    While paused time ``is_owed``, each claim is credited its own first, since the stored places are out of date.
    """
    now, claims = result.now, [*starts.hooks]
    # Hooks take no permits. If only hooks start, storing the buckets of the plan would undo what others took.
    rates: Sequence[Rate] = ()
    if starts.controls_version in (None, version):
        wanted, rates = starts.claims, starts.rates
        if starts.admission is not None:
            wanted, rates = cluster.admit(connection, starts.admission, rates, result)
        claims += [*wanted, *_released_first(starts, result)]
    else:
        result.controls = controls.read(connection)
    if is_owed and claims:
        paused_time.settle(connection, claims)
    elif starts.lanes:
        claims = _claim_fronts(connection, claims, starts, result)
    if claims:
        _claim(connection, claims, starts.prefetch, result)
    cron.claimed(connection, result.claimed, now, result.commit)
    if result.commit.released:
        started = {task.id for task in result.claimed}
        result.commit.released = [task for task in result.commit.released if task.id not in started]
    if rates and result.claimed:
        among_nodes = starts.admission is not None
        controls.take_from(connection, rates, result.claimed, now, result, among_nodes=among_nodes)


def _released_first(starts: Starts, result: TurnResult) -> list[int]:
    """Return the tasks released by this turn that may start at once, since nothing else waits."""
    if not starts.spare or not result.commit.released:
        return []
    return [task.id for task in sorted(result.commit.released)[: starts.spare]]


def _claim_fronts(
    connection: Connection, claims: Sequence[int], starts: Starts, result: TurnResult, version: int | None = None
) -> list[int]:
    """Claim the tasks that are now first in each lane, as many as were chosen; return the claims to make by id.

    With ``version``, claim nothing if the controls have another version. A task that was chosen to start and then asked
    to stop has left its lane, so its hook is claimed by id.
    """
    hooks = set(starts.hooks)
    lanes = {id: lane for id, lane in (starts.lanes or {}).items() if id not in hooks}
    wanted: dict[Lane, list[tuple[int, bool]]] = {}
    for id in claims:
        if id in lanes:
            lane, queued_at = lanes[id]
            wanted.setdefault(lane, []).append((queued_at, id not in starts.prefetch))
    if wanted:
        # An old snapshot keeps dead index entries alive; start scanning after them.
        fronts = encoded(
            [
                (*astuple(lane), len(queued), sum(has_slot for _, has_slot in queued), min(queued)[0])
                for lane, queued in wanted.items()
            ]
        )
        result.claimed = _decode_claimed(one(connection, SQL["claim_fronts"], fronts, result.now, version))
        _order_by_turns(result.claimed, [lanes[id][0] for id in claims if id in lanes])
    return [id for id in claims if id not in lanes]


def _order_by_turns(claimed: list[Claimed], lanes: Sequence[Lane]) -> None:
    """Put claimed tasks into the order in which their lanes were chosen, so that groups take turns."""
    turns: dict[Lane, list[int]] = {}
    for turn in range(len(lanes) - 1, -1, -1):
        turns.setdefault(lanes[turn], []).append(turn)
    order = {task.id: turns[task.lane].pop() for task in claimed}
    claimed.sort(key=lambda task: order[task.id])


def _claim(connection: Connection, claims: Sequence[int], prefetch: Collection[int], result: TurnResult) -> None:
    read, claim = claiming(claims, prefetch, result.now)
    rows = one(connection, read.name, *read.parameters)
    connection.execute(claim.name, claim.parameters)
    note_claimed(connection, claims, rows, result)


def claiming(claims: Sequence[int], prefetch: Collection[int], now: int) -> tuple[Statement, Statement]:
    """Return the statements that read and claim tasks; on PostgreSQL the first one does both."""
    parameters = encoded(claims), now, encoded(list(prefetch))
    return Statement(SQL["claimable"], parameters), Statement(SQL["claim"], parameters)


def note_claimed(connection: Connection, claims: Sequence[int], rows: str, result: TurnResult) -> None:
    """Note the tasks that were claimed, given the chosen ones and the rows that were read."""
    damaged: list[int] = []
    try:
        result.claimed += _decode_claimed(rows)
    except UNREADABLE:
        # One damaged row must not block the others, so decode them one by one.
        for row in _decode_raw(rows.encode("utf-8", "surrogateescape")):
            try:
                result.claimed.append(_decode_one_claimed(row))
            except UNREADABLE:
                damaged.append(int(bytes(_decode_raw(row)[0])))
    if not damaged:
        load.count_claimed(connection, result.claimed)
    else:
        connection.be_alone()
        load.recount(connection)
        ends = [EndingRow(id, Ending.DEAD_LETTER, result.now, None, None, UNREADABLE_ROW) for id in damaged]
        end_tasks(connection, ends, result.now, result.commit)
    if len(result.claimed) > 1:
        place = {id: position for position, id in enumerate(claims)}
        result.claimed.sort(key=lambda task: place.get(task.id, 0))
