"""Settings, pauses, rate limits and priorities that were changed at run time."""

from __future__ import annotations

from typing import Any

import pytest

from taskmill.core.ports import Store
from taskmill.model.attempt import End, MakeWay
from taskmill.model.controls import EVERYTHING, Bucket, Change, Declared, Pause, Scope, ScopeKind
from taskmill.model.filters import Filters
from taskmill.model.settings import Group, RateLimit
from taskmill.model.status import Ending, OnDuplicate, Status
from taskmill.model.task import Lane, Links, Place
from taskmill.model.turn import Judged, Look, Starts, Turn, TurnUpkeep
from taskmill.policy.rates import full_bucket, permits_at
from tests.repetition import seeds
from tests.store.contract.paused_time import PausedTime
from tests.store.contract.samples import NOW, TYPE, active, add, claim, commit, ended, new_task

G = Scope(ScopeKind.GROUP, "g")
D = Scope(ScopeKind.DOMAIN, "d")
T = Scope(ScopeKind.TYPE, TYPE)
ONE_PER_SECOND = RateLimit(1, 1, burst=3)


async def place_of(store: Store, id: int) -> tuple[int, int | None]:
    """Return the place of a task in the queue and its deadline."""
    record = await active(store, id)
    expires_at = None if record.expires_at is None else round(record.expires_at.timestamp() * 1000)
    fronts = (await store.turn(Turn(now=NOW, look=Look(survey=True)))).fronts
    (place,) = [place for places in fronts.values() for place in places if place.id == id]
    return place.queued_at, expires_at


class Controls:
    """One law per test."""

    # Settings

    async def test_controls_are_read_as_they_were_set(self, store: Store) -> None:
        assert (await store.controls()).changes == {}
        await store.change({G: Change(weight=3, rate=ONE_PER_SECOND), D: Change(cap=2)})
        await store.change({G: Change(weight=4), T: Change(rate=None)})
        found = await store.controls()
        assert found.changes == {
            G: Change(weight=4, rate=ONE_PER_SECOND),
            D: Change(cap=2),
            T: Change(rate=None),
        }
        assert (found.pauses, found.buckets, found.declared) == ({}, {}, None)

    async def test_every_control_makes_the_version_grow_and_a_permit_does_not(self, store: Store) -> None:
        versions = [(await store.controls()).version]

        async def grown() -> bool:
            versions.append((await store.controls()).version)
            return versions[-1] > versions[-2]

        await store.change({G: Change(cap=1)})
        assert await grown()
        await store.pause(G, NOW, None)
        assert await grown()
        await store.resume(G, NOW + 1)
        assert await grown()
        await store.declare(Declared(max_concurrency=3))
        assert await grown()
        await store.declare(Declared(max_concurrency=3))
        assert not await grown(), "nothing has changed"
        await store.resume(G, NOW + 2)
        assert not await grown(), "nothing was paused"
        (id,) = await add(store, new_task(group="g"))
        turn = Turn(now=NOW, starts=Starts(claims=[id], rates=[(G, ONE_PER_SECOND, full_bucket(ONE_PER_SECOND, NOW))]))
        assert len((await store.turn(turn)).claimed) == 1
        assert not await grown()

    async def test_a_new_declaration_undoes_what_was_changed_about_the_same_thing_only(self, store: Store) -> None:
        first = Declared(groups={"g": Group(weight=2, cap=5)}, rates={TYPE: ONE_PER_SECOND})
        await store.declare(first)
        await store.change({G: Change(weight=9, cap=1), T: Change(rate=None), D: Change(cap=7)})
        await store.pause(G, NOW, None)
        await store.declare(Declared(groups={"g": Group(weight=3, cap=5)}, rates={TYPE: ONE_PER_SECOND}))
        found = await store.controls()
        assert found.changes == {G: Change(cap=1), T: Change(rate=None), D: Change(cap=7)}
        assert set(found.pauses) == {G}, "a pause is no setting"
        assert found.declared is not None
        assert found.declared.groups["g"].weight == 3

    # Claims and controls

    async def test_claims_under_an_outdated_version_claim_nothing_and_learn_the_controls(self, store: Store) -> None:
        one, two = await add(store, new_task(group="g"), new_task(group="g"))
        version = (await store.controls()).version
        await store.pause(G, NOW, NOW + 50)
        buckets = [(G, ONE_PER_SECOND, full_bucket(ONE_PER_SECOND, NOW))]
        result = await store.turn(
            Turn(now=NOW, starts=Starts(claims=[one, two], controls_version=version, rates=buckets, spare=5))
        )
        assert (result.claimed, list(result.buckets)) == ([], [])
        assert result.controls is not None
        assert result.controls.pauses == {G: Pause(NOW, NOW + 50)}
        assert (await store.controls()).buckets == {}, "no permit was taken"
        current = result.controls.version
        again = await store.turn(Turn(now=NOW, starts=Starts(claims=[one], controls_version=current)))
        assert ([task.id for task in again.claimed], again.controls) == ([one], None)

    async def test_an_outdated_version_delays_no_verdict_and_no_hook(self, store: Store) -> None:
        done, stopped, waiting = await add(store, new_task(), new_task(), new_task())
        task, hooked = await claim(store, done, stopped)
        await store.cancel([stopped], NOW)
        await store.recover(NOW)
        (task,) = await claim(store, done)
        version = (await store.controls()).version
        await store.pause(EVERYTHING, NOW, None)
        judged = [Judged(task, End(Ending.COMPLETED, "1"), 1)]
        starts = Starts(hooks=[stopped], claims=[waiting], controls_version=version)
        result = await store.turn(Turn(now=NOW, judged=judged, starts=starts))
        assert [claimed.id for claimed in result.claimed] == [hooked.id]
        assert (await ended(store, done)).ending == Ending.COMPLETED

    async def test_a_hook_under_an_outdated_version_leaves_the_permits_as_others_left_them(self, store: Store) -> None:
        first, stopped, waiting = await add(store, *(new_task(group="g") for _ in range(3)))
        await claim(store, stopped)
        await store.cancel([stopped], NOW)
        await store.recover(NOW)
        planned = [(G, ONE_PER_SECOND, full_bucket(ONE_PER_SECOND, NOW))]
        await store.turn(Turn(now=NOW, starts=Starts(claims=[first], rates=planned)))
        taken = (await store.controls()).buckets
        version = (await store.controls()).version
        await store.pause(Scope(ScopeKind.GROUP, "other"), NOW, None)
        starts = Starts(hooks=[stopped], claims=[waiting], controls_version=version, rates=planned)
        result = await store.turn(Turn(now=NOW, starts=starts))
        assert [task.id for task in result.claimed] == [stopped]
        assert (await store.controls()).buckets == taken != {}

    # Rate limits

    async def test_permits_are_taken_for_tasks_that_start_and_for_no_others(self, store: Store) -> None:
        there, stale, gone, other = await add(
            store,
            new_task(group="g"),
            new_task(group="g", expires_at=NOW),
            new_task(group="g"),
            new_task(type="d::other"),
        )
        await store.cancel([gone], NOW)
        full = full_bucket(ONE_PER_SECOND, NOW)
        both = [(G, ONE_PER_SECOND, full), (T, ONE_PER_SECOND, full)]
        result = await store.turn(Turn(now=NOW, starts=Starts(claims=[there, stale, gone, other], rates=both)))
        assert [task.id for task in result.claimed] == [there, other]
        left = {scope: permits_at(bucket, ONE_PER_SECOND, NOW) for scope, bucket in result.buckets}
        assert left == {G: 2, T: 2}
        stored = (await store.controls()).buckets
        assert stored == dict(result.buckets)
        assert stored[G] == Bucket(2000, NOW, 1000)

    async def test_a_bucket_that_is_full_again_is_forgotten_unless_more_is_known(self, store: Store) -> None:
        (one, two) = await add(store, new_task(group="g"), new_task(group="h"))
        h = Scope(ScopeKind.GROUP, "h")
        full = full_bucket(ONE_PER_SECOND, NOW)
        await store.turn(
            Turn(now=NOW, starts=Starts(claims=[one], rates=[(G, ONE_PER_SECOND, full), (T, ONE_PER_SECOND, full)]))
        )
        await store.change({T: Change(cap=1)})
        await store.turn(Turn(now=NOW + 999, starts=Starts(claims=[two], rates=[(h, ONE_PER_SECOND, full)])))
        assert set((await store.controls()).buckets) == {G, T, h}
        (three,) = await add(store, new_task(group="h"))
        bucket = (await store.controls()).buckets[h]
        await store.turn(Turn(now=NOW + 1000, starts=Starts(claims=[three], rates=[(h, ONE_PER_SECOND, bucket)])))
        assert set((await store.controls()).buckets) == {T, h}

    async def test_a_bucket_is_remembered_until_it_is_full_by_the_limit_that_is_declared_now(
        self, store: Store
    ) -> None:
        one, two = await add(store, new_task(group="g"), new_task(group="h"))
        h, slow = Scope(ScopeKind.GROUP, "h"), RateLimit(1, 60, burst=3)
        full = full_bucket(ONE_PER_SECOND, NOW)
        await store.declare(Declared(default_group=Group(rate=ONE_PER_SECOND)))
        await store.turn(Turn(now=NOW, starts=Starts(claims=[one], rates=[(G, ONE_PER_SECOND, full)])))
        await store.declare(Declared(default_group=Group(rate=slow)))
        await store.turn(
            Turn(now=NOW + 59_999, starts=Starts(claims=[two], rates=[(h, slow, full_bucket(slow, NOW + 59_999))]))
        )
        assert set((await store.controls()).buckets) == {G, h}
        await store.turn(
            Turn(now=NOW + 60_000, starts=Starts(claims=await add(store, new_task()), rates=[(h, slow, full)]))
        )
        assert G not in (await store.controls()).buckets

    async def test_a_hook_takes_no_permit(self, store: Store) -> None:
        stopped, waiting = await add(store, new_task(group="g"), new_task(group="g"))
        await claim(store, stopped)
        await store.cancel([stopped], NOW)
        await store.recover(NOW)
        buckets = [(G, ONE_PER_SECOND, full_bucket(ONE_PER_SECOND, NOW))]
        result = await store.turn(Turn(now=NOW, starts=Starts(hooks=[stopped], claims=[waiting], rates=buckets)))
        assert [task.id for task in result.claimed] == [stopped, waiting]
        assert [permits_at(bucket, ONE_PER_SECOND, NOW) for _, bucket in result.buckets] == [2]

    # Pauses

    async def test_pausing_and_resuming_say_whether_they_changed_anything(self, store: Store) -> None:
        assert not await store.resume(G, NOW)
        assert await store.pause(G, NOW, None)
        assert not await store.pause(G, NOW + 5, NOW + 50)
        assert (await store.controls()).pauses == {G: Pause(NOW, NOW + 50)}, "the start is kept, the end is new"
        assert await store.resume(G, NOW + 10)
        assert not await store.resume(G, NOW + 11)
        assert (await store.controls()).pauses == {}

    async def test_pauses_end_when_their_time_has_come_and_not_before(self, store: Store) -> None:
        other = Scope(ScopeKind.GROUP, "h")
        await store.pause(G, NOW, NOW + 50)
        await store.pause(other, NOW, NOW + 60)
        await store.pause(D, NOW, None)
        assert await store.end_pauses(NOW + 49) == []
        assert await store.end_pauses(NOW + 50) == [G]
        assert await store.end_pauses(NOW + 500) == [other]
        assert set((await store.controls()).pauses) == {D}

    async def test_a_pause_made_longer_does_not_end_at_its_old_time(self, store: Store) -> None:
        await store.pause(G, NOW, NOW + 50)
        await store.pause(G, NOW + 49, None)
        assert await store.end_pauses(NOW + 50) == []
        assert (await store.controls()).pauses == {G: Pause(NOW)}

    @pytest.mark.parametrize("scope", [EVERYTHING, D, G])
    async def test_paused_time_is_given_back_whatever_a_task_waits_for(self, store: Store, scope: Scope) -> None:
        deadline = NOW + 1000
        pending, scheduled, blocker, elsewhere = await add(
            store,
            new_task(group="g", expires_at=deadline, created_at=NOW - 10, queued_at=NOW - 10),
            new_task(group="g", expires_at=deadline, status=Status.SCHEDULED, due_at=NOW + 500, queued_at=NOW + 500),
            new_task(type="e::t"),
            new_task(type="e::t", group="h", expires_at=deadline),
        )
        (blocked,) = await add(
            store,
            new_task(group="g", expires_at=deadline, status=Status.BLOCKED, links=Links(depends_on=(blocker,))),
        )
        await store.pause(scope, NOW + 10, None)
        (late,) = await add(
            store, new_task(group="g", expires_at=deadline + 20, created_at=NOW + 20, queued_at=NOW + 20)
        )
        await store.resume(scope, NOW + 110)

        async def deadline_of(id: int) -> int:
            record = await active(store, id)
            assert record.expires_at is not None
            return round(record.expires_at.timestamp() * 1000)

        assert await place_of(store, pending) == (NOW - 10 + 100, deadline + 100)
        assert await place_of(store, late) == (NOW + 20 + 90, deadline + 20 + 90)
        assert [await deadline_of(id) for id in (scheduled, blocked)] == [deadline + 100, deadline + 100]
        assert await deadline_of(elsewhere) == deadline + (100 if scope == EVERYTHING else 0)
        promoted = await store.turn(Turn(now=NOW + 500, upkeep=TurnUpkeep(promote=True)))
        assert [(task.lane, task.place) for task in promoted.commit.released] == [
            (Lane("g", 128, TYPE), Place(NOW + 500, scheduled, scheduled)),
        ], "it began to wait afterwards"

    async def test_a_running_task_gets_nothing_back_and_one_that_returns_only_what_it_waited(
        self, store: Store
    ) -> None:
        running, back = await add(
            store, new_task(group="g", expires_at=NOW + 1000), new_task(group="g", expires_at=NOW + 1000)
        )
        _, returning = await claim(store, running, back)
        await store.pause(G, NOW + 10, None)
        await store.turn(Turn(now=NOW + 60, judged=[Judged(returning, MakeWay(), 60)]))
        await store.turn(Turn(now=NOW + 70, upkeep=TurnUpkeep(resume_preempted=True)))
        await store.resume(G, NOW + 110)
        assert await place_of(store, back) == (NOW + 50, NOW + 1050)
        record = await active(store, running)
        assert record.expires_at is not None
        assert round(record.expires_at.timestamp() * 1000) == NOW + 1000

    async def test_sweeps_and_the_next_expiry_pass_over_what_is_paused(self, store: Store) -> None:
        paused, free = await add(
            store, new_task(group="g", expires_at=NOW + 10), new_task(group="h", expires_at=NOW + 20)
        )
        await store.pause(G, NOW + 5, None)
        result = await store.turn(Turn(now=NOW + 15, upkeep=TurnUpkeep(expire=True)))
        assert (result.commit.ended, result.next_expiry) == ([], NOW + 20)
        result = await store.turn(Turn(now=NOW + 25, upkeep=TurnUpkeep(expire=True)))
        assert ([gone.task.id for gone in result.commit.ended], result.next_expiry) == ([free], None)
        await store.resume(G, NOW + 105)
        result = await store.turn(Turn(now=NOW + 109, upkeep=TurnUpkeep(expire=True)))
        assert (result.commit.ended, result.next_expiry) == ([], NOW + 110)
        result = await store.turn(Turn(now=NOW + 110, upkeep=TurnUpkeep(expire=True)))
        assert [gone.task.id for gone in result.commit.ended] == [paused]

    async def test_a_task_that_one_of_two_pauses_still_covers_does_not_expire(self, store: Store) -> None:
        (id,) = await add(store, new_task(group="g", expires_at=NOW + 10))
        await store.pause(G, NOW, None)
        await store.pause(D, NOW + 2, None)
        await store.turn(Turn(now=NOW + 50, upkeep=TurnUpkeep(expire=True)))
        await store.resume(G, NOW + 60)
        result = await store.turn(Turn(now=NOW + 60, upkeep=TurnUpkeep(expire=True), look=Look(survey=True)))
        assert (result.commit.ended, result.next_expiry) == ([], None)
        await store.resume(D, NOW + 80)
        assert (await place_of(store, id))[1] == NOW + 90

    async def test_a_task_of_a_paused_scope_is_shown_and_counted_as_paused(self, store: Store) -> None:
        pending, scheduled, running, other = await add(
            store,
            new_task(group="g"),
            new_task(group="g", status=Status.SCHEDULED, due_at=NOW + 10),
            new_task(group="g"),
            new_task(group="h"),
        )
        await claim(store, running)
        await store.pause(G, NOW, None)
        statuses = [(await active(store, id)).status for id in (pending, scheduled, running, other)]
        assert statuses == ["paused", "scheduled", "running", "pending"]
        assert [record.id for record in await store.tasks(Filters(status=Status.PAUSED))] == [pending]
        assert [record.id for record in await store.tasks(Filters(status=Status.PENDING))] == [other]
        assert await store.count(Filters(status=Status.PAUSED)) == 1
        counts = await store.counts()
        assert (counts["pending"], counts["paused"]) == (1, 1)

    async def test_a_paused_occurrence_that_was_never_tried_does_not_stand_in_the_way(self, store: Store) -> None:
        (id,) = await add(store, new_task(group="g", links=Links(every_ms=1000)))
        (task,) = await claim(store, id)
        await store.pause_series(id, NOW)
        await commit(store, task, End(Ending.COMPLETED, "1"))
        await store.pause(G, NOW + 600, None)
        assert await store.resume(G, NOW + 700)
        change = await store.resume_series(id, NOW + 800)
        assert change.occurrence is not None
        assert (await active(store, change.occurrence.id)).status == Status.SCHEDULED

    @pytest.mark.parametrize("seed", seeds(3))
    async def test_pauses_nested_in_any_order_give_back_the_time_they_took_and_no_more(
        self, store: Store, seed: int
    ) -> None:
        trial = PausedTime(store, seed)
        for _ in range(60):
            await trial.step()
        await trial.resume_everything()
        await trial.check()

    # Preemption

    async def test_a_preempted_task_is_paused_without_a_retry_and_returns_to_its_place(self, store: Store) -> None:
        (id,) = await add(store, new_task(expires_at=NOW + 1000))
        (task,) = await claim(store, id)
        await store.save(id, task.attempt, '{"part":3}')
        await store.turn(Turn(now=NOW + 100, judged=[Judged(task, MakeWay(), 100)]))
        record = await active(store, id)
        assert (record.status, record.retries, record.last_error) == (Status.PAUSED, 0, None)
        assert (await store.turn(Turn(now=NOW + 100, look=Look(survey=True)))).has_preempted
        assert await claim(store, id) == []
        result = await store.turn(Turn(now=NOW + 400, upkeep=TurnUpkeep(resume_preempted=True), look=Look(survey=True)))
        assert ([each.id for each in result.commit.resumed], result.has_preempted) == ([id], False)
        assert [each.place for each in result.commit.released] == [Place(NOW + 300, id, id)], "it has not waited"
        (task,) = await claim(store, id, now=NOW + 5000)
        assert (task.saved, task.attempt, task.retries, task.crashes) == ('{"part":3}', 2, 0, 0)

    async def test_a_return_that_ends_an_overdue_pause_says_so(self, store: Store) -> None:
        (id,) = await add(store, new_task(group="g"))
        (task,) = await claim(store, id)
        await store.turn(Turn(now=NOW, judged=[Judged(task, MakeWay(), 0)]))
        await store.pause(G, NOW, NOW + 50)
        result = await store.turn(Turn(now=NOW + 60, upkeep=TurnUpkeep(resume_preempted=True)))
        assert result.commit.pauses_ended == [G]
        assert await store.end_pauses(NOW + 60) == []

    async def test_a_preempted_task_stays_preempted_after_a_recovery(self, store: Store) -> None:
        made_way, running = await add(store, new_task(), new_task())
        task, _ = await claim(store, made_way, running)
        await store.turn(Turn(now=NOW, judged=[Judged(task, MakeWay(), 1)]))
        assert (await store.recover(NOW)).returned == 1
        assert (await active(store, made_way)).status == Status.PAUSED
        assert (await store.turn(Turn(now=NOW, look=Look(survey=True)))).has_preempted

    async def test_a_preempted_task_can_be_cancelled_and_replaced(self, store: Store) -> None:
        await store.publish_types({TYPE: '{"has_on_cancel":false}'})
        cancelled, replaced = await add(store, new_task(key="a"), new_task(key="b"))
        for task in await claim(store, cancelled, replaced):
            await store.turn(Turn(now=NOW, judged=[Judged(task, MakeWay(), 1)]))
        assert (await store.cancel([cancelled], NOW)).ids == [cancelled]
        (stored,) = await store.add([new_task(key="b", on_duplicate=OnDuplicate.SUPERSEDE)])
        assert stored.kind == "superseded"
        assert (await ended(store, cancelled)).ending == Ending.CANCELLED
        assert (await ended(store, replaced)).ending == Ending.SUPERSEDED
        assert not (await store.turn(Turn(now=NOW, look=Look(survey=True)))).has_preempted
        assert len(await claim(store, stored.id)) == 1

    # Priorities

    async def test_another_priority_is_another_lane_and_reaches_what_is_waited_for(self, store: Store) -> None:
        (blocker,) = await add(store, new_task())
        (blocked,) = await add(store, new_task(status=Status.BLOCKED, links=Links(depends_on=(blocker,))))
        commit = await store.set_priority(blocked, 5)
        assert commit is not None
        assert commit.reordered
        assert (await store.turn(Turn(now=NOW, look=Look(survey=True)))).lanes == [Lane("", 5, TYPE)]
        assert [(await active(store, id)).priority for id in (blocker, blocked)] == [128, 5]

    @pytest.mark.parametrize("ending", [Ending.COMPLETED, Ending.CANCELLED])
    async def test_the_priority_of_what_has_ended_or_never_was_cannot_be_set(
        self, store: Store, ending: Ending
    ) -> None:
        (id,) = await add(store, new_task())
        (task,) = await claim(store, id)
        await commit(store, task, End(ending, "1"))
        assert await store.set_priority(id, 1) is None
        assert await store.set_priority(999, 1) is None
        record: Any = await ended(store, id)
        assert record.priority == 128
