"""Storing submissions in one transaction: look up keys and dependencies, plan with the policy, write rows."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from taskmill.model.attempt import StopReason
from taskmill.model.commit import Commit
from taskmill.model.status import Ending
from taskmill.model.submission import Stored
from taskmill.model.task import NewTask, Origin
from taskmill.policy.dependencies import NO_NEEDS, WAITS_FOR_ITSELF, Needs, depends_on, tie
from taskmill.policy.duplicates import Holder, Name
from taskmill.policy.inbox import Answer, InboxPlan, Keys, Superseding, plan_inbox
from taskmill.store.sql import dependencies, expiring, families, paused_time, series
from taskmill.store.sql.connection import Connection, decode_ids, encoded, one
from taskmill.store.sql.endings import CRON_ONLY, NO_LINK_KINDS, end_tasks
from taskmill.store.sql.rows import EndingRow, insert_rows, read_described
from taskmill.store.sql.statements import SQL

_decode_holders = msgspec.json.Decoder(list[tuple[str, str, Holder, msgspec.Raw]], strict=False).decode
_decode_stoppers = msgspec.json.Decoder(list[tuple[str, str, int]]).decode

Request = Sequence[NewTask]


def is_plain(requests: Sequence[Request]) -> bool:
    """True if none of the tasks has a key or a link, so that no other task is affected."""
    return all(task.key is None and task.links is None for request in requests for task in request)


def insert(connection: Connection, requests: Sequence[Request], now: int) -> tuple[list[Answer], Commit]:
    """Store the tasks of each request; the answer to a refused request is its error."""
    if is_plain(requests):
        return _insert_plain(connection, requests)
    connection.be_alone()
    commit = Commit()
    found = look_up(connection, requests, now, commit, sum(map(len, requests)))
    plan = plan_inbox(requests, found.keys, found.last_id + 1, needs_of(connection, requests, found.keys))
    commit.fresh = list(enumerate(plan.fresh, plan.first_id))
    commit.blocked = list({id for id, _, is_open in plan.edges if is_open})
    _store(connection, plan, found, commit, now)
    return plan.answers, commit


def spawn(connection: Connection, tasks: Request, origin: Origin, now: int) -> tuple[Answer, Commit]:
    """Store the children or siblings that an attempt spawns."""
    (answer,), commit = insert(connection, [families.adopt(connection, tasks, origin)], now)
    return answer, commit


def _insert_plain(connection: Connection, requests: Sequence[Request]) -> tuple[list[Answer], Commit]:
    """Store tasks without keys and links: there is nothing to decide, and ids ascend in input order."""
    tasks = requests[0] if len(requests) == 1 else [task for request in requests for task in request]
    first_id = insert_rows(connection, tasks)
    ids = itertools.count(first_id)
    answers: list[Answer] = [[Stored(next(ids), "inserted") for _ in request] for request in requests]
    return answers, Commit(fresh=list(enumerate(tasks, first_id)))


class Found(msgspec.Struct, gc=False):
    """Everything that is read before the plan is made."""

    keys: Keys
    """The holders of the requested keys."""
    last_id: int
    """The id after which there is room for all new tasks."""
    has_dependents: bool
    """True if any task has open dependencies."""
    has_firings: bool
    """True if any task is a cron firing."""
    owes_paused_time: bool
    """True if the time of ended pauses is not yet given back to all tasks."""
    holders: dict[int, msgspec.Raw]
    """Descriptions of the key holders for events, by id."""
    late: list[int]
    """Key holders and dependencies whose stored deadlines have passed."""


def read_holders(connection: Connection, requests: Sequence[Request], now: int, room: int) -> Found:
    """Read the holders of the requested keys, and make room for ``room`` new tasks."""
    wanted = {(task.type, task.key) for request in requests for task in request if task.key is not None}
    row = connection.execute(SQL["key_holders"], (encoded(list(wanted)), room, now)).fetchone()
    holders = _decode_holders(row[0])
    keys = Keys(
        {(type, key): holder for type, key, holder, _ in holders},
        {(type, key): id for type, key, id in _decode_stoppers(row[1])},
    )
    described = {holder.id: description for _, _, holder, description in holders}
    late = [holder.id for _, _, holder, _ in holders if holder.is_late]
    if awaited := _awaited(requests):
        late += decode_ids(one(connection, SQL["late"], encoded(list(awaited)), now))
    return Found(keys, row[2], bool(row[3]), bool(row[4]), bool(row[5]), described, late)


def look_up(connection: Connection, requests: Sequence[Request], now: int, commit: Commit, room: int) -> Found:
    """End expired holders of the requested keys and expired dependencies, then read the holders."""
    connection.pass_over_lost_ids()
    found = read_holders(connection, requests, now, room)
    if found.late:
        # An expired task holds no key, whether or not a scheduler dispatches. Its end can create tasks, such as the
        # next occurrence of a series, which take ids and possibly the key. So look up again.
        expiring.expire_among(connection, found.late, now, commit)
        found = read_holders(connection, requests, now, room)
    if found.owes_paused_time and found.holders:
        # A replacement takes over the position of the task it replaces, so that position must be final.
        paused_time.settle(connection, list(found.holders))
        found.keys = read_holders(connection, requests, now, 0).keys
    return found


def needs_of(connection: Connection, requests: Sequence[Request], keys: Keys) -> Needs:
    """Read the states of the dependencies, and find requests whose tasks would wait for themselves."""
    if all(task.links is None for request in requests for task in request):
        return NO_NEEDS
    circular = {
        number: why
        for number, request in enumerate(requests)
        if (why := _closes_cycle(connection, request, keys.holders)) is not None
    }
    return Needs(dependencies.states(connection, _awaited(requests)), circular)


def _awaited(requests: Sequence[Request]) -> set[int]:
    """Return the ids of the stored tasks that the new ones depend on."""
    return {
        dependency
        for request in requests
        for task in request
        for dependency in depends_on(task)
        if isinstance(dependency, int)
    }


def _closes_cycle(connection: Connection, request: Request, holders: Mapping[Name, Holder]) -> str | None:
    """Return the reason if one of these tasks would wait for a stored task that waits for it, else None."""
    links = tie(request, holders)
    if links.parents and links.replaced:
        # The replacement would wait for the end of its own ancestor, which waits for its descendants.
        ancestors = families.ancestors(connection, links.parents)
        if (replaced := next((id for id in links.replaced if id in ancestors), None)) is not None:
            return (
                f"task {replaced} is an ancestor of the task that would replace it, and waits for it; "
                "use on_duplicate='requeue' to run it once more, or another key"
            )
    reaches = links.awaited and links.waiting and dependencies.waits_for(connection, links.awaited, links.waiting)
    if reaches and links.closes_cycle(dependencies.waits_below(connection, links.awaited)):
        return WAITS_FOR_ITSELF
    return None


def _store(connection: Connection, plan: InboxPlan, found: Found, commit: Commit, now: int) -> None:
    endings, has_dependents = _make_way(connection, plan, commit, now), found.has_dependents
    if not has_dependents and all(_is_alone(one, plan) for one in plan.superseded):
        # No links have to be passed on to the replacements: end the replaced tasks first, which frees their keys.
        tasks = read_described([found.holders[one.old_id] for one in plan.superseded])
        end_tasks(connection, endings, now, commit, ties=CRON_ONLY if found.has_firings else NO_LINK_KINDS, tasks=tasks)
        endings = []
    elif stored := [one.old_id for one in plan.superseded if one.old_id < plan.first_id]:
        connection.execute(SQL["give_up_keys"], (encoded(stored),))
    if plan.fresh:
        insert_rows(connection, plan.fresh, plan.first_id)
    if plan.edges:
        dependencies.link(connection, plan.edges, {id: task.priority for id, task in _rows(plan)}, commit)
    _join_links(connection, plan, commit, now)
    if plan.renewed:
        dependencies.reckon(connection, list(plan.renewed), commit)
    if plan.superseded:
        pairs = [(one.old_id, one.new_id) for one in plan.superseded]
        if has_dependents or plan.edges:
            dependencies.point_at_successors(connection, pairs, commit)
        commit.successors.update(pairs)
        # A child inherits urgency from its parent; its replacement was submitted without that.
        dependencies.reckon(connection, [id for id in _children(plan) if id in commit.successors.values()], commit)
    end_tasks(connection, endings, now, commit)


def _is_alone(one: Superseding, plan: InboxPlan) -> bool:
    """True if the replaced task is stored, waits to run, and is neither a child nor an occurrence of a series."""
    return one.waits and not one.is_tied and one.old_id < plan.first_id and not plan.edges


def _join_links(connection: Connection, plan: InboxPlan, commit: Commit, now: int) -> None:
    """Count new tasks with their parents, and create the series of which they are the first occurrence."""
    if _children(plan):
        families.count_children(connection, plan.first_id, plan.next_id() - 1, now, commit)
    for id, task in _rows(plan):
        if task.links is not None and task.links.every_ms is not None:
            series.begin(connection, id, task, task.links, commit)


def _rows(plan: InboxPlan) -> Iterator[tuple[int, NewTask]]:
    """Yield the ids and tasks that are stored or renewed."""
    yield from plan.renewed.items()
    yield from enumerate(plan.fresh, plan.first_id)


def _renew(connection: Connection, renewed: Mapping[int, NewTask], commit: Commit) -> None:
    """Overwrite runs that requeue has added with the newest submissions."""
    connection.execute(SQL["renew_added"], (encoded(list(renewed.items())),))
    connection.execute(SQL["delete_active_tags"], (encoded(list(renewed)),))
    for id in renewed:
        connection.execute(SQL["insert_tags"], (id, id))
    dependencies.drop(connection, list(renewed), commit)
    # A new deadline may be earlier than the next one that the dispatcher knows.
    commit.reordered = True


def _children(plan: InboxPlan) -> list[int]:
    """Return the ids of the new tasks that have a parent."""
    return [
        id
        for id, task in enumerate(plan.fresh, plan.first_id)
        if task.links is not None and task.links.parent_id is not None
    ]


def _make_way(connection: Connection, plan: InboxPlan, commit: Commit, now: int) -> list[EndingRow]:
    """Stop, overwrite or raise the tasks whose keys new submissions want; return the endings that follow at once."""
    endings: list[EndingRow] = []
    if plan.superseded:
        at_work = [one.old_id for one in plan.superseded if not one.waits]
        if at_work:
            endings += families.stop_trees(connection, at_work, StopReason.SUPERSEDE, now, commit)
        endings += [
            EndingRow(one.old_id, Ending.SUPERSEDED, now, None, None, None) for one in plan.superseded if one.waits
        ]
    for series_id in plan.ended_series:
        series.forget(connection, series_id)
    if plan.renewed:
        _renew(connection, plan.renewed, commit)
    if plan.raised:
        raised = list(plan.raised.items())
        connection.execute(SQL["raise_priority"], (encoded(raised),))
        dependencies.lend(connection, raised, commit)
    if plan.gave_keys:
        connection.execute(SQL["hand_keys_on"], (encoded(plan.gave_keys),))
    return endings
