"""The times of a task after ended pauses were added: alike for one task and for many together."""

from __future__ import annotations

from taskmill.model.controls import Controls, Declared, Pause, Scope, ScopeKind
from taskmill.model.status import Status
from taskmill.policy.paused_time import Settled, settled, settled_all
from taskmill.policy.rules import Rules
from taskmill.store.sql.paused_time import Times

GROUP = Scope(ScopeKind.GROUP, "g")
DOMAIN = Scope(ScopeKind.DOMAIN, "d")


def rules(ended: list[tuple[Scope, Pause]], pauses: dict[Scope, Pause] | None = None) -> Rules:
    return Rules(Declared(), Controls(1, None, {}, pauses or {}, ended, {}))


def task(
    id: int = 1,
    *,
    group: str = "g",
    type: str = "d::t",
    status: Status = Status.PENDING,
    queued_at: int = 0,
    renewed_at: int | None = None,
    paused_at: int | None = None,
    expires_at: int | None = 1000,
    clock_from: int = 0,
) -> Times:
    return Times(id, group, type, status, 0, queued_at, renewed_at, paused_at, expires_at, clock_from, None, id)


def test_the_time_of_a_pause_is_added_to_place_and_deadline() -> None:
    assert settled(task(), rules([(GROUP, Pause(100, 150))])) == Settled(50, None, 1050, 150)


def test_a_task_submitted_during_the_pause_gets_the_rest_of_it() -> None:
    late = task(queued_at=120, clock_from=120)
    assert settled(late, rules([(GROUP, Pause(100, 150))])) == Settled(150, None, 1030, 150)


def test_aging_and_the_deadline_may_begin_at_different_times() -> None:
    found = settled(task(queued_at=20, renewed_at=110, clock_from=130), rules([(GROUP, Pause(100, 150))]))
    assert found == Settled(60, 150, 1020, 150)


def test_overlapping_pauses_count_once() -> None:
    assert settled(task(), rules([(GROUP, Pause(100, 150)), (DOMAIN, Pause(120, 180))])) == Settled(80, None, 1080, 180)


def test_a_pause_that_still_holds_the_task_ends_what_is_added() -> None:
    found = settled(task(), rules([(GROUP, Pause(100, 150))], {DOMAIN: Pause(130)}))
    assert found == Settled(30, None, 1030, 130)


def test_nothing_is_added_to_other_groups_or_twice() -> None:
    ended = rules([(GROUP, Pause(100, 150))])
    assert settled(task(group="other"), ended) is None
    assert settled(task(paused_at=150), ended) is None


def test_many_tasks_are_settled_as_each_alone() -> None:
    ended = rules([(GROUP, Pause(100, 150)), (DOMAIN, Pause(120, 180))], {Scope(ScopeKind.GROUP, "h"): Pause(170)})
    tasks = [
        task(group=group, type=type, status=status, queued_at=queued_at, paused_at=paused_at, clock_from=queued_at)
        for group in ("g", "h")
        for type in ("d::t", "e::t")
        for status in (Status.PENDING, Status.PAUSED, Status.SCHEDULED)
        for queued_at in (0, 110, 130)
        for paused_at in (None, 105, 140)
    ]
    assert settled_all(tasks, ended) == [settled(each, ended) for each in tasks]
    assert len(set(settled_all(tasks, ended))) > 10
