"""Pages of tasks, active and ended, that cost about the same however many tasks there are.

A page searches *candidates*: the tasks of the best index, in the order of the page, and at most a given number of them.
The other filters are applied to these only. A search that stops early returns the place where it stopped.

Tasks are ordered by id, which is the order of submission. A page of ended tasks is ordered by the time of the end,
unless tags, a key or a parent select them: those indexes are in the order of ids.
"""

from collections.abc import Collection, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from taskmill.model.browsing import PageRequest, TaskPage
from taskmill.model.status import Ending, Status
from taskmill.store.sql import expired
from taskmill.store.sql.connection import Connection, encoded, one
from taskmill.store.sql.last_ended import last_ended
from taskmill.store.sql.reading import _active_conditions, _among, _conditions
from taskmill.store.sql.rows import View
from taskmill.store.sql.statements import SQL

_decode_texts = msgspec.json.Decoder(list[str]).decode

Place = tuple[int, int]
"""The order of a task: its time and its id; by id, the id twice."""


class _Search(NamedTuple):
    """One table and the conditions of a search in it."""

    table: Literal["taskmill_task", "taskmill_history"]
    where: str
    parameters: Sequence[Any]
    is_expired: bool = False


class _Found(NamedTuple):
    places: list[Place]
    searched: int
    stopped_at: Place | None
    """The last place that was searched, if there may be more after it."""


def page(connection: Connection, view: View, wanted: PageRequest) -> TaskPage:
    with connection.snapshot():
        return page_within(connection, view, wanted)


def page_within(connection: Connection, view: View, wanted: PageRequest) -> TaskPage:
    """Return a page as of the snapshot of the caller."""
    bounds = _bounds(connection, wanted)
    if bounds is None:
        return TaskPage(tasks=[], next=None, searched=0, is_complete=True)
    limit = wanted.filters.limit or 0
    found = [_searched(connection, view, wanted, search, bounds) for search in _searches(connection, view, wanted)]
    places = sorted({place for each in found for place in each.places}, reverse=not wanted.is_oldest_first)
    # Drop places after the first stop: the search that stopped there may have more of them.
    stops = [each.stopped_at for each in found if each.stopped_at is not None]
    stop = None if not stops else min(stops) if wanted.is_oldest_first else max(stops)
    if stop is not None:
        places = [place for place in places if (place <= stop if wanted.is_oldest_first else place >= stop)]
    shown = places[:limit]
    known = {record.id: record for record in _among(connection, view, encoded([id for _, id in shown]))}
    is_full = len(places) > limit
    return TaskPage(
        tasks=[known[id] for _, id in shown if id in known],
        next=shown[-1][1] if is_full else None if stop is None else stop[1],
        searched=sum(each.searched for each in found),
        is_complete=is_full or stop is None,
    )


def _bounds(connection: Connection, wanted: PageRequest) -> tuple[Place | None, Place | None] | None:
    """Return the places of ``after`` and ``before``; None if one of them is not known any more."""
    bounds: list[Place | None] = []
    for id in (wanted.filters.after, wanted.filters.before):
        if id is None or not wanted.is_by_end:
            bounds.append(None if id is None else (id, id))
            continue
        at = connection.execute(
            "SELECT ended_at FROM taskmill_history WHERE id = ?"
            " UNION ALL SELECT expires_at FROM taskmill_task WHERE id = ? AND expires_at IS NOT NULL",
            (id, id),
        ).fetchone()
        if at is None:
            return None
        bounds.append((at[0], id))
    return bounds[0], bounds[1]


def _searches(connection: Connection, view: View, wanted: PageRequest) -> list[_Search]:
    # The first tag selects the candidates; the others are looked up for each of them.
    filters = msgspec.structs.replace(wanted.filters, before=None, after=None, limit=None, tags={})
    searches: list[_Search] = []
    if wanted.part != "ended":
        if wanted.part is None:
            # Tasks that have expired are shown among the others, as ended.
            where, parameters = _conditions(filters, "taskmill_task", "status")
        else:
            where, parameters = _active_conditions(connection, view, filters)
        searches.append(_Search("taskmill_task", where, parameters))
    if wanted.part != "active":
        where, parameters = _conditions(filters, "taskmill_history", "ending")
        searches.append(_Search("taskmill_history", where, parameters))
    if wanted.part == "ended" and filters.status in (None, Ending.EXPIRED) and expired.any_expired(connection, view):
        text, moments = expired.at_present(connection.text(SQL["expired_active"]), view)
        where, parameters = _conditions(msgspec.structs.replace(filters, status=None), "taskmill_task", "status")
        searches.append(_Search("taskmill_task", f"{text} AND {where}", [*moments, *parameters], is_expired=True))
    return [_with_tags(search, wanted) for search in searches]


def _with_tags(search: _Search, wanted: PageRequest) -> _Search:
    where, parameters = search.where, [*search.parameters]
    for name, value in [*wanted.filters.tags.items()][1:]:
        where += f" AND EXISTS (SELECT 1 FROM {search.table}_tag WHERE name = ? AND value = ? AND task_id = t.id)"  # noqa: S608
        parameters += [name, value]
    return search._replace(where=where, parameters=parameters)


def _searched(
    connection: Connection, view: View, wanted: PageRequest, search: _Search, bounds: tuple[Place | None, Place | None]
) -> _Found:
    """Search a few candidates first, because most pages are full of them, and then as many as allowed."""
    limit = wanted.filters.limit or 0
    most, found = 2 * (limit + 1), None
    while found is None or (found.stopped_at is not None and most <= wanted.most_searched):
        found = _search(connection, view, wanted, search, bounds, most)
        most = most * 25 if most * 25 < wanted.most_searched else max(wanted.most_searched, most + 1)
    return found


def _search(
    connection: Connection,
    view: View,
    wanted: PageRequest,
    search: _Search,
    bounds: tuple[Place | None, Place | None],
    most: int,
) -> _Found:
    limit = wanted.filters.limit or 0
    candidates, parameters = _candidates(connection, view, wanted, search, bounds, most)
    order = _order(is_ascending=wanted.is_oldest_first)
    matching = (
        f"SELECT candidate_at, candidate_id FROM ({candidates}) AS candidate"  # noqa: S608 - fixed fragments
        f" JOIN {search.table} AS t ON t.id = candidate.candidate_id WHERE {search.where} {order} LIMIT ?"
    )
    rows = connection.execute(matching, [*parameters, *search.parameters, limit + 1]).fetchall()
    places = [(at, id) for at, id in rows]
    if len(places) > limit:
        return _Found(places, len(places), None)
    last = f"SELECT candidate_at, candidate_id FROM ({candidates}) AS candidate {order} LIMIT 1 OFFSET ?"  # noqa: S608
    stopped_at = connection.execute(last, [*parameters, most - 1]).fetchone()
    if stopped_at is not None:
        return _Found(places, most, (stopped_at[0], stopped_at[1]))
    searched: int = one(connection, f"SELECT count(*) FROM ({candidates}) AS candidate", *parameters)  # noqa: S608
    return _Found(places, searched, None)


def _order(*, is_ascending: bool) -> str:
    direction = "" if is_ascending else " DESC"
    return f"ORDER BY candidate_at{direction}, candidate_id{direction}"


def _candidates(
    connection: Connection,
    view: View,
    wanted: PageRequest,
    search: _Search,
    bounds: tuple[Place | None, Place | None],
    most: int,
) -> tuple[str, list[Any]]:
    """Return a query for the first ``most`` tasks of the best index, as ``candidate_at`` and ``candidate_id``."""
    filters = wanted.filters
    if wanted.is_by_end:
        return _by_end(connection, view, wanted, search, bounds, most)
    table: str = search.table
    column = "id"
    where: list[str] = []
    parameters: list[Any] = []
    if filters.tags:
        name, value = next(iter(filters.tags.items()))
        table, column = f"{search.table}_tag", "task_id"
        where, parameters = ["name = ?", "value = ?"], [name, value]
    elif filters.key is not None:
        return _by_key(connection, wanted, search, bounds, most)
    elif filters.parent is not None:
        where, parameters = ["parent_id = ?"], [filters.parent]
    elif search.table == "taskmill_task" and filters.status in _indexed_states(view):
        # Written out, so that SQLite recognizes the condition of the partial index.
        where = [f"status = '{filters.status}'"]
    _add_bounds(where, parameters, column, bounds)
    order = "" if wanted.is_oldest_first else " DESC"
    condition = " AND ".join(where) or "true"
    return (
        f"SELECT {column} AS candidate_at, {column} AS candidate_id FROM {table}"  # noqa: S608 - fixed fragments
        f" WHERE {condition} ORDER BY {column}{order} LIMIT ?",
        [*parameters, most],
    )


def _indexed_states(view: View) -> Collection[Status | None]:
    """Return the statuses with an index by id. While anything is paused, pending tasks may be shown as paused."""
    always = (Status.RUNNING, Status.WAITING)
    return always if view.rules.controls.pauses else (*always, Status.PAUSED)


def _add_bounds(
    where: list[str], parameters: list[Any], column: str, bounds: tuple[Place | None, Place | None]
) -> None:
    for bound, than in zip(bounds, (">", "<"), strict=True):
        if bound is not None:
            where.append(f"{column} {than} ?")
            parameters.append(bound[1])


_KEY_INDEXES = {"taskmill_task": ("key_held", "key_given_up"), "taskmill_history": ("key_of_ended",)}
"""The conditions of the partial indexes on type and key."""


def _by_key(
    connection: Connection,
    wanted: PageRequest,
    search: _Search,
    bounds: tuple[Place | None, Place | None],
    most: int,
) -> tuple[str, list[Any]]:
    """Return the candidates with a key. The index is by type, so each type is looked up."""
    filters = wanted.filters
    types = [filters.type] if filters.type is not None else _decode_texts(one(connection, SQL["known_types"]))
    arms: list[str] = []
    parameters: list[Any] = []
    for type in types:
        for condition in _KEY_INDEXES[search.table]:
            where = ["type = ?", "key = ?", connection.text(SQL[condition])]
            parameters += [type, filters.key]
            _add_bounds(where, parameters, "id", bounds)
            arms.append(f"SELECT id FROM {search.table} WHERE {' AND '.join(where)}")  # noqa: S608 - fixed fragments
    if not arms:
        arms = ["SELECT 0 AS id WHERE 1 = 0"]
    order = "" if wanted.is_oldest_first else " DESC"
    return (
        f"SELECT id AS candidate_at, id AS candidate_id FROM ({' UNION ALL '.join(arms)}) AS of_types"  # noqa: S608
        f" ORDER BY id{order} LIMIT ?",
        [*parameters, most],
    )


def _by_end(
    connection: Connection,
    view: View,
    wanted: PageRequest,
    search: _Search,
    bounds: tuple[Place | None, Place | None],
    most: int,
) -> tuple[str, list[Any]]:
    direction = "" if wanted.is_oldest_first else " DESC"
    column = "expires_at" if search.is_expired else "ended_at"
    where: list[str] = []
    parameters: list[Any] = []
    for bound, than in zip(bounds, (">", "<"), strict=True):
        if bound is not None:
            where.append(f"({column}, id) {than} (?, ?)")
            parameters += bound
    order = f"ORDER BY {column}{direction}, id{direction}"
    if search.is_expired:
        text, moments = expired.at_present(connection.text(SQL["expired_active"]), view)
        condition = " AND ".join([text, *where])
        return (
            f"SELECT expires_at AS candidate_at, id AS candidate_id FROM taskmill_task AS t"  # noqa: S608
            f" WHERE {condition} {order} LIMIT ?",
            [*moments, *parameters, most],
        )
    filters = wanted.filters
    if filters.type is not None:
        where.append("type = ?")
        parameters.append(filters.type)
    elif isinstance(filters.status, Ending):
        where.append("ending = ?")
        parameters.append(str(filters.status))
    else:
        query, values = last_ended(" AND ".join(where) or "true", parameters, most, order=order)
        return f"SELECT ended_at AS candidate_at, id AS candidate_id FROM ({query}) AS of_endings", values  # noqa: S608
    return (
        f"SELECT ended_at AS candidate_at, id AS candidate_id FROM taskmill_history"  # noqa: S608 - fixed fragments
        f" WHERE {' AND '.join(where)} {order} LIMIT ?",
        [*parameters, most],
    )
