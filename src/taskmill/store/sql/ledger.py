"""Commit turns and cancellations.

Each function runs inside the writer's transaction. :mod:`taskmill.store.sql.endings` commits endings and their
consequences.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import msgspec

from taskmill.model.attempt import FOR_A_TASK, FOR_PRESSURE, Again, End, LeaveToChildren, Next, StopChildren, StopReason
from taskmill.model.commit import CancelResult, Commit, SeriesChange
from taskmill.model.status import Ending
from taskmill.model.task import Lane, Place
from taskmill.model.turn import DueFront, Judged, Look, News, Turn, TurnResult, TurnUpkeep
from taskmill.policy.aging import front_size
from taskmill.policy.families import ENDING_OF_STOP
from taskmill.policy.verdicts import after_attempt
from taskmill.store.sql import attempt_errors, claims, cluster, controls, cron, families, machine, paused_time, series
from taskmill.store.sql.connection import Connection, Statement, encoded, one
from taskmill.store.sql.endings import LinkKinds, end_tasks, just_ends, leave_active, leaving
from taskmill.store.sql.expiring import expire, expire_among
from taskmill.store.sql.releasing import note_new, note_queued, note_queued_elsewhere, promote
from taskmill.store.sql.rows import EndingRow, describe
from taskmill.store.sql.statements import SQL

MOST_NEWS = 500
"""How many new tasks of other processes are read one by one; for more, a survey costs less."""
MOST_TOGETHER = 256 * 2**10
"""The most characters, in sum, of the payloads of the tasks that a turn ends in one call."""
BITE = 500
"""How many tasks upkeep moves in one transaction, so that other transactions do not wait long for it."""


_decode = msgspec.json.Decoder().decode
_decode_fronts = msgspec.json.Decoder(list[tuple[str, int, str, bool, list[Place]]]).decode
_decode_stopped = msgspec.json.Decoder(list[tuple[int, StopReason, bool]], strict=False).decode
_decode_due = msgspec.json.Decoder(DueFront).decode
_decode_news = msgspec.json.Decoder(News).decode
_decode_held = msgspec.json.Decoder(list[tuple[int, str | None, bool, LinkKinds]], strict=False).decode

_NOT_HELD = (None, False, LinkKinds())


def _one(connection: Connection, statement: str, *parameters: Any) -> Any:
    return one(connection, SQL[statement], *parameters)


def commit_turn(connection: Connection, turn: Turn, now: int, node: str | None = None) -> TurnResult:
    """Execute a plan of the node ``node`` as of ``now``: a plain one in one call, any other part by part."""
    result = TurnResult(now)
    if _is_plain(turn) and _commit_together(connection, turn, result):
        result.in_one_call = True
        _look(connection, turn, result, is_owed=False)
        return result
    if turn.progress:
        connection.execute(SQL["report_progress"], (encoded(turn.progress),))
    if turn.begun:
        connection.execute(SQL["note_begun"], (encoded(turn.begun),))
    if turn.judged:
        machine.note_io(connection, turn.judged)
        _commit_verdicts(connection, turn.judged, result)
        attempt_errors.note(connection, turn.judged, result.lost, now, node)
        machine.learn_io(connection, turn.judged, result.lost)
    if turn.returns:
        for_hooks = {task.id for task in turn.returns if task.stop is not None}
        _return_unstarted(connection, [(task.id, task.attempt) for task in turn.returns], now, result.commit, for_hooks)
        result.commit.returned += [task.id for task in turn.returns]
    if turn.at_work is not None:
        connection.execute(SQL["unclaim_others"], (encoded(turn.at_work),))
        # Their ids are not known.
        result.commit.reordered = True
    if turn.upkeep.is_due():
        _keep_up(connection, turn.upkeep, now, result.commit)
    is_owed = False
    if not claims.claim_if_unchanged(connection, turn, result):
        version, is_owed = controls.version(connection)
        if is_owed:
            paused_time.settle_released(connection, result.commit)
        claims.start(connection, turn.starts, result, version, is_owed=is_owed)
    if turn.starts.preempt is not None:
        cluster.preempt(connection, turn.starts.preempt, result)
    _look(connection, turn, result, is_owed=is_owed)
    return result


def _is_plain(turn: Turn) -> bool:
    """True if a turn only ends tasks for which no other task waits, and claims tasks by id."""
    starts = turn.starts
    if not (turn.judged and starts.claims) or starts.lanes is not None or starts.controls_version is None:
        return False
    if starts.hooks or starts.rates or starts.admission is not None or starts.owes_paused_time:
        return False
    if turn.progress or turn.begun or turn.returns or turn.at_work is not None or turn.upkeep.is_due():
        return False
    if turn.look.survey or starts.preempt is not None:
        return False
    if sum(len(each.task.payload) for each in turn.judged) > MOST_TOGETHER:
        # The next tasks are probably as large, and an answer in one call is copied once more.
        return False
    return all(just_ends(each) and each.io is None and each.failure is None for each in turn.judged)


def _commit_together(connection: Connection, turn: Turn, result: TurnResult) -> bool:
    """Commit a plain turn in one call; return False if it has to be committed part by part after all."""
    starts, judged = turn.starts, turn.judged
    statements = [Statement(SQL["same_controls"], (starts.controls_version,), 1), _ending(judged, result.now)]
    tagged = any(each.task.tags for each in judged)
    statements += leaving(encoded([each.task.id for each in judged]), _sums(judged), tagged=tagged)
    rows = connection.execute_together([*statements, *claims.claiming(starts.claims, starts.prefetch, result.now)])
    if rows is None:
        return False
    claims.note_claimed(connection, starts.claims, rows, result)
    cron.claimed(connection, result.claimed, result.now, result.commit)
    return True


def _return_unstarted(
    connection: Connection,
    tokens: Sequence[tuple[int, int]],
    now: int,
    commit: Commit,
    for_hooks: Collection[int] = (),
) -> None:
    """Return claimed tasks that were not started to the queue.

    A task that was asked to stop meanwhile ends if it has never begun. Otherwise its ``on_cancel`` hook becomes due.
    Tasks that were claimed ``for_hooks`` are not announced again: this process has no handler for them.
    """
    connection.execute(SQL["unclaim"], (encoded(tokens),))
    stopped = _decode_stopped(_one(connection, "stopped_unstarted", encoded([id for id, _ in tokens])))
    commit.hooks += [id for id, _, has_begun in stopped if has_begun and id not in for_hooks]
    ends = [
        EndingRow(id, ENDING_OF_STOP[stop], now, None, None, None) for id, stop, has_begun in stopped if not has_begun
    ]
    if ends:
        connection.be_alone()
        end_tasks(connection, ends, now, commit)


def _keep_up(connection: Connection, upkeep: TurnUpkeep, now: int, commit: Commit) -> None:
    """Make the changes that are due, at most :data:`BITE` tasks of each kind."""
    if upkeep.promote:
        promote(connection, now, BITE, commit)
    if upkeep.resume_preempted or upkeep.resume_eased:
        connection.be_alone()
        causes = ((FOR_A_TASK, upkeep.resume_preempted), (FOR_PRESSURE, upkeep.resume_eased))
        paused_time.bring_back(connection, [cause for cause, is_over in causes if is_over], now, commit)
    if upkeep.expire:
        connection.be_alone()
        if paused_time.freeze(connection, now):
            expire(connection, now, BITE, commit)
    if upkeep.skip:
        series.skip_passed(connection, now, BITE, commit)


def _look(connection: Connection, turn: Turn, result: TurnResult, *, is_owed: bool) -> None:
    """Read what the plan asks for: the whole queue's outline, or some lanes and the next instants."""
    look, upkeep = turn.look, turn.upkeep
    refill = look.refill
    if (look.survey or look.news is not None) and (row := connection.execute(SQL["newest"]).fetchone()) is not None:
        result.news = _decode_news(row[0])
    if look.survey:
        cluster.survey(connection, look.slots, result)
        refill = result.lanes or ()
    elif upkeep.promote:
        result.next_due = _decode_due(_one(connection, "next_due"))
    if (look.news is not None or look.queued) and not look.survey:
        result.seen = Commit()
        result.needs_survey = not _read_news(connection, look, result, result.seen)
    if look.urgent:
        result.spawned = families.spawned_among(connection, look.urgent)
    if upkeep.expire and not look.survey:
        result.next_expiry = _one(connection, "next_expiry")
    if upkeep.skip and not look.survey:
        result.next_beat = _one(connection, "next_beat")
    if refill:
        result.front_size = front_size(max(look.known_lanes, len(refill)))
    if refill and is_owed:
        result.fronts = paused_time.fronts(connection, refill, result.front_size, result.now)
    elif refill:
        found = _decode_fronts(_one(connection, "front_of_lanes", encoded(refill), result.front_size, result.now))
        result.fronts = {Lane(group, urgency, type, renewed): places for group, urgency, type, renewed, places in found}


def _read_news(connection: Connection, look: Look, result: TurnResult, seen: Commit) -> bool:
    """Read the tasks that other processes have queued; return False if only a survey can show what they did."""
    if look.queued:
        return len(look.queued) <= MOST_NEWS and note_queued_elsewhere(connection, look.queued, seen)
    known = look.news
    if known is None or result.news is None or result.news.moves != known.moves:
        return False
    return note_new(connection, known.last_id, MOST_NEWS, seen)


class _Followed(msgspec.Struct):
    """The judged attempts of a turn, grouped by what happens to their tasks next."""

    ends: list[Judged] = msgspec.field(default_factory=list[Judged])
    again: list[tuple[Judged, Again]] = msgspec.field(default_factory=list[tuple[Judged, Again]])
    left: list[tuple[Judged, LeaveToChildren]] = msgspec.field(default_factory=list[tuple[Judged, LeaveToChildren]])
    stops: list[tuple[Judged, StopChildren]] = msgspec.field(default_factory=list[tuple[Judged, StopChildren]])

    def sort(self, judged: Judged, following: Next) -> None:
        match following:
            case End():
                self.ends.append(judged)
            case Again():
                self.again.append((judged, following))
            case LeaveToChildren():
                self.left.append((judged, following))
            case StopChildren():
                self.stops.append((judged, following))


def _commit_verdicts(connection: Connection, judged: Sequence[Judged], result: TurnResult) -> None:
    ending = [each for each in judged if just_ends(each)]
    if ending and _all_just_ended(connection, ending, result.now):
        if len(ending) == len(judged):
            return
        judged = [each for each in judged if not just_ends(each)]
    connection.be_alone()
    if begun := [(each.task.id, each.task.attempt, each.began_at) for each in judged if each.began_at is not None]:
        connection.execute(SQL["note_begun"], (encoded(begun),))
    tokens = [(each.task.id, each.task.attempt) for each in judged]
    held = {row[0]: row[1:] for row in _decode_held(_one(connection, "held_tokens", encoded(tokens)))}
    followed = _Followed()
    for each in judged:
        task = each.task
        stop, has_children, _ = held.get(task.id, _NOT_HELD)
        if task.id not in held or (stop is not None and not each.stopped):
            result.lost[(task.id, task.attempt)] = stop
        else:
            followed.sort(each, after_attempt(each, has_children=has_children))
    if followed.again:
        return_to_queue(connection, [(each.task.id, again) for each, again in followed.again], result.now)
        returned = [each for each, _ in followed.again]
        result.commit.returned += [each.task.id for each in returned]
        cron.returned(connection, returned, result.now, result.commit)
        _note_changed_lanes(connection, returned, result)
    if followed.ends:
        ties = LinkKinds(*map(any, zip(*(held[each.task.id][2] for each in followed.ends), strict=True)))
        _end_judged(connection, followed.ends, ties, result.now, result)
    if followed.left or followed.stops:
        _leave_to_children(connection, followed, result.now, result)


def return_to_queue(connection: Connection, rows: Sequence[tuple[int, Again]], now: int) -> None:
    """Return tasks to the queue; each row is an id and the columns to set."""
    connection.execute(SQL["return_to_queue"], (encoded([(id, *again) for id, again in rows]), now))


def _note_changed_lanes(connection: Connection, judged: Sequence[Judged], result: TurnResult) -> None:
    """Note tasks that return to another lane: a waiting dependent made them more urgent while they ran."""
    before = {each.task.id: each.task.urgency for each in judged}
    returned = Commit()
    note_queued(connection, list(before), returned)
    result.commit.released += [task for task in returned.released if task.lane.urgency != before[task.id]]


def _leave_to_children(connection: Connection, followed: _Followed, now: int, result: TurnResult) -> None:
    endings: list[EndingRow] = []
    if followed.left:
        waits = [
            (each.task.id, None if left.end is None else encoded(_outcome(left.end, each.duration_ms)), left.finalizes)
            for each, left in followed.left
        ]
        result.waiting, endings = families.await_children(connection, waits, now, result.commit)
    for each, stops in followed.stops:
        task = each.task
        result.waiting[task.id] = task.family.children if task.family is not None else 0
        outcome = _outcome(stops.end, each.duration_ms)
        endings += families.end_with_children(connection, task.id, outcome, now, result.commit)
    end_tasks(connection, endings, now, result.commit)


def _outcome(end: End, duration_ms: int) -> families.Outcome:
    return end.ending, end.result, end.error, duration_ms


def _ending(judged: Sequence[Judged], now: int) -> Statement:
    """Return the statement that writes tasks to history whose attempts have just ended."""
    ends = [each.verdict for each in judged if isinstance(each.verdict, End)]
    is_same = ends[0].error is None and ends.count(ends[0]) == len(ends)
    # SQLite parses a row again for each value it reads, so an ending that all rows share is passed apart from them.
    common = (ends[0].ending, now, ends[0].result) if is_same else (None, None, None)
    said = [(None,) * 4] * len(ends) if is_same else [(end.ending, now, end.result, end.error) for end in ends]
    rows = [
        (each.task.id, ending, ended_at, each.duration_ms, result, error, each.task.attempt, each.began_at)
        for each, (ending, ended_at, result, error) in zip(judged, said, strict=True)
    ]
    return Statement(SQL["record_endings"], (encoded(rows), *common), len(rows))


def _all_just_ended(connection: Connection, judged: Sequence[Judged], now: int) -> bool:
    """Commit the verdicts on tasks that simply end by the fast path; return False if one needs the full path."""
    record = _ending(judged, now)
    if not connection.execute_if_all(record.name, record.parameters, len(judged)):
        return False
    tagged = any(each.task.tags for each in judged)
    leave_active(connection, encoded([each.task.id for each in judged]), _sums(judged), tagged=tagged)
    return True


def _end_judged(
    connection: Connection, ending: Sequence[Judged], ties: LinkKinds, now: int, result: TurnResult
) -> None:
    rows = [
        EndingRow(judged.task.id, verdict.ending, now, judged.duration_ms, verdict.result, verdict.error)
        for judged in ending
        if isinstance(verdict := judged.verdict, End)
    ]
    tagged = any(judged.task.tags for judged in ending)
    end_tasks(connection, rows, now, result.commit, sums=_sums(ending), tagged=tagged, told=True, ties=ties)


def _sums(judged: Iterable[Judged]) -> str:
    """Return what these endings add to the tally."""
    sums: dict[tuple[str, str, Ending], list[int]] = {}
    for each in judged:
        if isinstance(each.verdict, End):
            total = sums.setdefault((each.task.type, each.task.group, each.verdict.ending), [0, 0])
            total[0] += 1
            total[1] += each.duration_ms
    return encoded([(*key, *total) for key, total in sums.items()])


def cancel(connection: Connection, ids: Sequence[int], now: int, prefetched: Sequence[tuple[int, int]]) -> CancelResult:
    """End waiting tasks and ask running ones to stop, descendants first.

    ``prefetched`` has the tokens of tasks that were claimed and cannot begin any more; they return to the queue first.
    """
    result = CancelResult()
    if prefetched:
        _return_unstarted(connection, prefetched, now, result.commit)
    expire_among(connection, ids, now, result.commit)
    result.ids = [task.id for task in describe(connection, ids)]
    end_tasks(
        connection,
        families.stop_trees(connection, result.ids, StopReason.CANCEL, now, result.commit),
        now,
        result.commit,
    )
    return result


def pause_series(connection: Connection, id: int, now: int) -> SeriesChange:
    """Pause a recurring series and its active occurrence."""
    return series.pause(connection, id, now, _expire_occurrence(connection, id, now))


def resume_series(connection: Connection, id: int, now: int) -> SeriesChange:
    """Resume a recurring series and its active occurrence."""
    return series.resume(connection, id, now, _expire_occurrence(connection, id, now))


def _expire_occurrence(connection: Connection, id: int, now: int) -> Commit:
    """End the active occurrence of a series if it has expired; the next one takes its place."""
    commit = Commit()
    expire_among(connection, series.occurrence_of(connection, id), now, commit)
    return commit


def cancel_series(connection: Connection, id: int, now: int) -> SeriesChange:
    """End a recurring series and its active occurrence."""
    change, endings = series.cancel(connection, id, now, _expire_occurrence(connection, id, now))
    end_tasks(connection, endings, now, change.commit)
    return change
