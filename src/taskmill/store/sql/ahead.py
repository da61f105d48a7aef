"""Counting the tasks ahead of a waiting task, in a time that does not grow with the queue.

Each lane is in the order of the queue, so the tasks ahead are a span of each lane: those that are more urgent now, and
those that are as urgent and have an earlier place. The store keeps the number of tasks of each group and type: the
length of a lane, if they have only that one. Other spans are counted in the index of the queue. Counting stops at
:data:`MOST_AHEAD`: a larger number takes long to count, and means the same to a reader (docs/decisions/0032).
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec
from msgspec.structs import astuple

from taskmill.model.controls import EVERYTHING
from taskmill.model.explanation import Situation
from taskmill.model.task import Lane
from taskmill.policy.aging import effective_priority, wait_until_ms
from taskmill.policy.paused_time import clocks
from taskmill.policy.rules import Rules
from taskmill.store.sql.connection import Connection, decode_pairs, encoded, one
from taskmill.store.sql.counting import lanes
from taskmill.store.sql.statements import SQL

MOST_AHEAD = 50_000
"""The largest number of tasks ahead that is counted: with 100,000, ``explain`` took more than 50 ms."""
MOST_LOOKED_AT = 10_000
"""How many tasks are read, one by one, in lanes that are not ordered by age."""
FIRST_COUNTED = 16
"""The number of spans that are counted first."""
FOREVER = 2**62
_END = (FOREVER, 0)

_decode_queued = msgspec.json.Decoder(list[tuple[str, str, int]]).decode
_decode_looks = msgspec.json.Decoder(list[tuple[int, tuple[int, int]]]).decode


class Ahead(NamedTuple):
    """The number of tasks ahead, or the largest that is counted if there are more."""

    number: int
    is_exact: bool


class _Span(NamedTuple):
    """The tasks of a lane whose age began after ``since``, up to ``until``, and whose place is before ``before``."""

    lane: Lane
    since: int
    until: int
    before: tuple[int, int] = _END
    is_whole: bool = False
    """True if it is certain that the span is the whole lane."""

    @property
    def depends_on_age(self) -> bool:
        """True if the span is only a part of a lane that is not ordered by age."""
        return self.lane.renewed and (self.since, self.until) != (-1, FOREVER)

    def in_index(self) -> tuple[int, int, int]:
        """Return the time after which the span begins in the index, and the place before which it ends."""
        return self.since, *min(self.before, (self.until + 1, 0))


def count_ahead(connection: Connection, situation: Situation, rules: Rules, now: int) -> Ahead:
    """Count the waiting tasks that would start before this one now."""
    own = situation.group
    effective = effective_priority(rules.declared.aging, situation.urgency, clocks(situation, rules, now).waited)
    more, equal, others = list[_Span](), list[_Span](), list[_Span]()
    moments: dict[int, tuple[int, int]] = {}
    heads = lanes(connection)
    for group, urgency, type, renewed, first, _, _ in heads:
        lane = Lane(group, urgency, type, renewed)
        if (rules.is_shared and group != own) or (rules.controls.pauses and _is_paused(lane, rules, now)):
            continue
        if urgency not in moments:
            moments[urgency] = _since(rules, urgency, effective - 1, now), _since(rules, urgency, effective, now)
        more_since, equal_since = moments[urgency]
        # The first task of a lane is its oldest, unless the aging of its tasks was restarted.
        oldest = -1 if renewed else first
        if oldest <= more_since:
            more.append(_Span(lane, -1, more_since, is_whole=more_since == FOREVER))
        if oldest > equal_since or more_since == FOREVER:
            continue
        if group == own:
            equal.append(_Span(lane, more_since, equal_since, (situation.queued_at, situation.place_id)))
        else:
            is_whole = equal_since == FOREVER and (more_since == -1 or oldest > more_since)
            others.append(_Span(lane, more_since, equal_since, is_whole=is_whole))
    counting = _Counting(connection, Counter((head.group, head.type) for head in heads))
    counting.count(more)
    before = counting.count(equal)
    # Equally urgent tasks of different groups start alternately.
    counting.count(others, most_of_group=before)
    return Ahead(min(counting.total, MOST_AHEAD), counting.is_exact and counting.total <= MOST_AHEAD)


def _is_paused(lane: Lane, rules: Rules, now: int) -> bool:
    """True if the group or the domain of a lane is paused. A pause of the scheduler holds all tasks alike."""
    pauses = rules.pauses(lane.group, lane.type).items()
    return any(scope != EVERYTHING and pause.holds(now) for scope, pause in pauses)


def _since(rules: Rules, urgency: int, level: int, now: int) -> int:
    """Return the latest instant from which a task of this urgency has to wait to be as urgent as ``level`` now."""
    if urgency <= level:
        return FOREVER
    aging = rules.declared.aging
    wait = None if aging is None else wait_until_ms(aging, urgency, level)
    return -1 if wait is None else now - wait


class _Counting:
    """Counts tasks until there are more than :data:`MOST_AHEAD`."""

    def __init__(self, connection: Connection, lanes: Counter[tuple[str, str]]) -> None:
        self._connection = connection
        self._lanes = lanes
        """The number of lanes of each group and type."""
        self.total = 0
        self.is_exact = True
        """False if some lanes were not read to the end of the span."""

    def count(self, spans: Iterable[_Span], most_of_group: int = FOREVER) -> int:
        """Count the tasks of some spans, at most ``most_of_group`` of each group, and add them to the total.

        A few spans are counted first, then more and more at once: if the first ones have enough tasks, the others
        need not be visited.
        """
        wanted = MOST_AHEAD + 1 - self.total
        if wanted <= 0 or not most_of_group:
            return 0
        aged, whole, left = list[_Span](), list[_Span](), list[_Span]()
        for span in spans:
            if span.since >= span.until:
                continue
            if span.depends_on_age:
                aged.append(span)
            elif span.is_whole and self._lanes[span.lane.group, span.lane.type] == 1:
                whole.append(span)
            else:
                left.append(span)
        groups = self._look_at(aged)
        if whole:
            queued = self._queued()
            for span in whole:
                groups[span.lane.group] += queued[span.lane.group, span.lane.type]
        at_once = FIRST_COUNTED
        while left and _total(groups, most_of_group) < wanted:
            self._count_some(left[:at_once], groups, wanted, most_of_group)
            left = left[at_once:]
            at_once *= 4
        number = _total(groups, most_of_group)
        self.total += number
        return number

    def _count_some(self, spans: list[_Span], groups: Counter[str], wanted: int, most_of_group: int) -> None:
        """Add the tasks of some spans to the numbers of their groups, until enough are found.

        One round counts the same number of tasks in each span, together about as many as are missing. The next
        round counts the spans that have more.
        """
        most = 0
        counted = [0] * len(spans)
        unfinished: list[int] = list(range(len(spans)))
        while unfinished and (missing := wanted - _total(groups, most_of_group)) > 0:
            most = min(most + math.ceil(missing / len(unfinished)), most_of_group)
            rows = [(n, *astuple(spans[n].lane), *spans[n].in_index()) for n in unfinished]
            for n, found in decode_pairs(one(self._connection, SQL["in_spans"], encoded(rows), most)):
                groups[spans[n].lane.group] += found - counted[n]
                counted[n] = found
            unfinished = [n for n in unfinished if counted[n] == most < most_of_group]

    def _queued(self) -> Counter[tuple[str, str]]:
        """Return the number of tasks in the lanes of each group and type."""
        queued = Counter[tuple[str, str]]()
        for group, type, number in _decode_queued(one(self._connection, SQL["queued"])):
            queued[group, type] += number
        return queued

    def _look_at(self, spans: Sequence[_Span]) -> Counter[str]:
        """Count the tasks of each group by reading them, a limited number of each lane."""
        groups = Counter[str]()
        if not spans:
            return groups
        most = max(MOST_LOOKED_AT // len(spans), 1)
        rows = [
            (n, span.lane.group, span.lane.urgency, span.lane.type, span.since, span.until, *span.before)
            for n, span in enumerate(spans)
        ]
        looks = dict(_decode_looks(one(self._connection, SQL["in_renewed_spans"], encoded(rows), most)))
        self.is_exact = self.is_exact and all(looked < most for looked, _ in looks.values())
        for n, span in enumerate(spans):
            groups[span.lane.group] += looks[n][1]
        return groups


def _total(groups: Counter[str], most_of_group: int) -> int:
    return sum(min(found, most_of_group) for found in groups.values())
