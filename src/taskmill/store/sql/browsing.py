"""Bounded reads for user interfaces: suggestions for filters, activity over time, details of one task."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from taskmill.model.browsing import Kept, PageRequest, SpanOfHistory, SuggestField
from taskmill.model.filters import Filters
from taskmill.model.records import Dependency, HistoryRecord, TaskRecord
from taskmill.model.status import Ending, Status
from taskmill.model.type_name import domain_of
from taskmill.store.sql.connection import Connection, encoded, one
from taskmill.store.sql.paging import page_within
from taskmill.store.sql.reading import _among
from taskmill.store.sql.replacements import replacements
from taskmill.store.sql.rows import View
from taskmill.store.sql.statements import SQL

_decode_texts = msgspec.json.Decoder(list[str]).decode
_decode_counts = msgspec.json.Decoder(list[tuple[int, int]]).decode
_decode_times = msgspec.json.Decoder(list[tuple[int, int | None, int | None]]).decode
_decode_edges = msgspec.json.Decoder(list[Dependency], strict=False).decode
_decode_kept = msgspec.json.Decoder(tuple[Any, int | None, bool], strict=False).decode
_decode_children = msgspec.json.Decoder(dict[str, int]).decode
_decode_aging = msgspec.json.Decoder(tuple[int, int]).decode

TIMED = (Ending.COMPLETED, Ending.FAILED, Ending.DEAD_LETTER)
"""The endings of tasks that ran; other tasks have no useful times."""
MOST_IN_A_SPAN = 100_000
MOST_LINKS = 100
MOST_OF_A_KEY = 20
LAST = "\U0010ffff"
"""Sorts after every other character, in both engines."""


# Suggestions


def suggest(connection: Connection, field: SuggestField, prefix: str, limit: int) -> list[str]:
    """Return values of a field that begin with ``prefix``, in order."""
    match field:
        case "state":
            return _starting(prefix, ["active", "ended", *map(str, Status), *map(str, Ending)], limit)
        case "type":
            return _starting(prefix, _types(connection), limit)
        case "domain":
            return _starting(prefix, sorted({domain_of(type) for type in _types(connection)}), limit)
        case "group":
            found = one(connection, SQL["known_groups"], prefix, prefix + LAST, limit)
            return _starting(prefix, sorted(_decode_texts(found)), limit)
        case "tag":
            name, has_value, value = prefix.partition("=")
            if not has_value:
                return _starting(prefix, _column(connection, "tag_names", prefix, limit), limit)
            values = _starting(value, _column(connection, "tag_values_from", name, value, limit), limit)
            return [f"{name}={each}" for each in values]
        case "key":
            keys = {key for type in _types(connection) for key in _column(connection, "keys_from", type, prefix, limit)}
            return _starting(prefix, sorted(keys), limit)


def _types(connection: Connection) -> list[str]:
    return sorted(_decode_texts(one(connection, SQL["known_types"])))


def _column(connection: Connection, statement: str, *parameters: Any) -> list[str]:
    return [text for (text,) in connection.execute(SQL[statement], parameters).fetchall()]


def _starting(prefix: str, texts: Iterable[str], limit: int) -> list[str]:
    return [text for text in texts if text.startswith(prefix)][:limit]


# Activity


def activity(connection: Connection, spans: Sequence[tuple[int, int]], sample: int) -> list[SpanOfHistory]:
    """Return what ended in each span: counts from an index, and times of the last ``sample`` tasks."""
    with connection.snapshot():
        kept: dict[str, int] = msgspec.json.decode(one(connection, SQL["ended_counts"]))
        endings = [ending for ending in Ending if kept.get(ending)]
        asked = [(n, ending, since, until) for n, (since, until) in enumerate(spans) for ending in endings]
        counts = _decode_counts(one(connection, SQL["ended_in_spans"], encoded(asked), MOST_IN_A_SPAN))
        found = [SpanOfHistory({}, []) for _ in spans]
        for (n, count), (_, ending, since, until) in zip(counts, asked, strict=True):
            if not count:
                continue
            found[n].ended[str(ending)] = count
            if ending in TIMED:
                found[n].times.extend(
                    _decode_times(one(connection, SQL["times_in_span"], ending, since, until, sample))
                )
    return found


# One task


def kept(connection: Connection, view: View, record: TaskRecord | HistoryRecord) -> Kept | None:
    """Return what is stored about a task besides its record; None if it was pruned meanwhile."""
    with connection.snapshot():
        row = connection.execute(SQL["kept_of_task"], (record.id,)).fetchone()
        if row is None:
            return None
        saved, series_id, is_replaced = _decode_kept(row[0])
        replaced, replaced_by = replacements(connection, record.id, record.type, record.key, is_replaced=is_replaced)
        aging = connection.execute(SQL["aged_from"], (record.id,)).fetchone()
        depends_on = _decode_edges(one(connection, SQL["edges_of"], record.id, MOST_LINKS))
        dependents = _decode_edges(one(connection, SQL["edges_to"], record.id, MOST_LINKS))
        ids = [each.on_id for each in depends_on] + [each.task_id for each in dependents]
        same: Sequence[TaskRecord | HistoryRecord] = ()
        if record.key is not None:
            wanted = Filters(type=record.type, key=record.key, limit=MOST_OF_A_KEY)
            same = page_within(connection, view, PageRequest(filters=wanted, most_searched=MOST_OF_A_KEY)).tasks
        return Kept(
            msgspec.json.decode(saved) if isinstance(saved, str) else saved or {},
            series_id,
            _decode_children(one(connection, SQL["children_by_state"], record.id)),
            replaced,
            replaced_by,
            None if aging is None else _decode_aging(aging[0]),
            depends_on,
            dependents,
            {each.id: each for each in _among(connection, view, encoded(ids))},
            same,
        )
