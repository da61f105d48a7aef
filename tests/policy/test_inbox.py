"""Laws of the inbox: the result of a batch of requests, compared with storing them one by one."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from taskmill.errors import DuplicateTask, SubmissionError
from taskmill.model.status import OnDuplicate, Status
from taskmill.model.submission import Stored
from taskmill.model.task import NewTask
from taskmill.policy.duplicates import Holder
from taskmill.policy.inbox import InboxPlan, Keys, Superseding, plan_inbox


def new_task(key: str | None, priority: int, on_duplicate: OnDuplicate, payload: str) -> NewTask:
    return NewTask(
        type="d::t",
        key=key,
        label=None,
        group="",
        priority=priority,
        status=Status.PENDING,
        payload=payload,
        tags=None,
        overrides=None,
        created_at=5,
        queued_at=5,
        due_at=None,
        due_is_relative=False,
        expires_at=None,
        ttl_ms=None,
        gate_id=None,
        stop=None,
        on_duplicate=on_duplicate,
    )


tasks = st.builds(
    new_task,
    st.none() | st.sampled_from("abc"),
    st.integers(0, 5),
    st.sampled_from(OnDuplicate),
    st.uuids().map(str),
)
requests = st.lists(st.lists(tasks, max_size=4), max_size=5)


@dataclass
class Row:
    task: NewTask
    status: Status
    priority: int
    gave_key: bool = False
    ended: bool = False
    stopping: bool = False

    @property
    def holds_key(self) -> bool:
        return self.task.key is not None and not self.ended and not self.stopping and not self.gave_key


@dataclass
class Store:
    """A plain model: rows by id, some of them running."""

    rows: dict[int, Row] = field(default_factory=dict[int, Row])

    def start(self, ids: set[int]) -> None:
        for id in ids & set(self.rows):
            if not self.rows[id].ended and self.rows[id].task.gate_id is None:
                self.rows[id].status = Status.RUNNING

    def keys(self) -> Keys:
        keys = Keys()
        for id, row in self.rows.items():
            if row.ended or row.task.key is None:
                continue
            name = (row.task.type, row.task.key)
            if not row.holds_key:
                keys.stopping[name] = id
                continue
            gate = self.rows.get(row.task.gate_id or 0)
            keys.holders[name] = Holder(
                id,
                row.status,
                row.priority,
                row.task.queued_at,
                row.task.gate_id,
                place_id=row.task.place_id,
                is_added=gate is not None and gate.gave_key,
                gate_stops=gate is not None and gate.stopping,
            )
        return keys

    def put(self, requests: list[list[NewTask]]) -> list[object]:
        plan = plan_inbox(requests, self.keys(), first_id=max(self.rows, default=0) + 1)
        for id, task in enumerate(plan.fresh, plan.first_id):
            self.rows[id] = Row(task, task.status, task.priority, stopping=task.stop is not None)
        for id, priority in plan.raised.items():
            self.rows[id].priority = priority
        for id in plan.gave_keys:
            self.rows[id].gave_key = True
        for id, task in plan.renewed.items():
            self.rows[id].task, self.rows[id].priority = task, task.priority
        for old, _new, waits, _is_tied in plan.superseded:
            self.rows[old].stopping = True
            self.rows[old].ended = waits
        return answers_of(plan)

    def contents(self) -> list[tuple[object, ...]]:
        return [
            (
                id,
                row.task.key,
                row.status,
                row.priority,
                row.task.payload,
                row.task.gate_id,
                row.task.place_id,
                row.gave_key,
                row.ended,
            )
            for id, row in self.rows.items()
        ]


def stores(before: list[list[NewTask]], running: set[int]) -> tuple[Store, Store]:
    made = (Store(), Store())
    for store in made:
        store.put(before)
        store.start(running)
    return made


@given(requests, st.sets(st.integers(1, 10)), requests)
def test_a_batch_comes_to_the_same_as_its_requests_one_by_one(
    before: list[list[NewTask]], running: set[int], batch: list[list[NewTask]]
) -> None:
    together, apart = stores(before, running)
    answers = together.put(batch)
    assert answers == [apart.put([request])[0] for request in batch]
    assert together.contents() == apart.contents()


@given(requests, st.sets(st.integers(1, 10)), requests)
def test_no_key_is_held_twice_and_a_replacement_waits_for_what_runs(
    before: list[list[NewTask]], running: set[int], batch: list[list[NewTask]]
) -> None:
    store, _ = stores(before, running)
    store.put(batch)
    holders = [row.task.key for row in store.rows.values() if row.holds_key]
    assert len(holders) == len(set(holders))
    for id, row in store.rows.items():
        if not row.holds_key:
            continue
        runs_beside = [
            other
            for other, its in store.rows.items()
            if other != id and its.task.key == row.task.key and its.status is Status.RUNNING and not its.ended
        ]
        assert row.task.gate_id in runs_beside if runs_beside else row.task.gate_id is None
        assert (row.status is Status.BLOCKED) == (row.task.gate_id is not None)


@given(requests, requests)
def test_a_refused_request_stores_nothing(before: list[list[NewTask]], batch: list[list[NewTask]]) -> None:
    store, _ = stores(before, set())
    answers = store.put(batch)
    payloads = {row.task.payload for row in store.rows.values()}
    for request, answer in zip(batch, answers, strict=True):
        if isinstance(answer, tuple):
            assert not payloads & {task.payload for task in request}


def everything_about(key: str) -> list[list[NewTask]]:
    """Return requests that reveal the holder of a key, its priority, place and gate, and which tasks are stopping."""
    return [
        [new_task(key, 5, OnDuplicate.REJECT, "who")],
        [new_task(key, 0, OnDuplicate.SKIP, "how urgent")],
        [new_task(key, 0, OnDuplicate.SUPERSEDE, "where")],
    ]


@given(requests, st.sets(st.integers(1, 10)), requests, st.lists(tasks, max_size=4))
def test_a_refused_request_leaves_the_plan_and_the_keys_as_they_were(
    before: list[list[NewTask]], running: set[int], batch: list[list[NewTask]], doomed: list[NewTask]
) -> None:
    store, _ = stores(before, running)
    keys, first_id = store.keys(), max(store.rows, default=0) + 1
    # Whatever it does to its own keys, the request is refused in the end.
    surely_held = [new_task("d", 3, OnDuplicate.SKIP, "holder")]
    refused = [*doomed, new_task("d", 3, OnDuplicate.REJECT, "refused")]
    after = [request for key in "abcd" for request in everything_about(key)]

    plan = plan_inbox([surely_held, *batch, refused, *after], keys, first_id)
    without = plan_inbox([surely_held, *batch, *after], keys, first_id)

    assert isinstance(plan.answers.pop(1 + len(batch)), DuplicateTask)
    assert answers_of(plan) == answers_of(without)
    plan.answers, without.answers = [], []
    assert plan == without
    assert keys == store.keys(), "the caller's argument is unchanged"


def answers_of(plan: InboxPlan) -> list[object]:
    return [
        ("refused", str(answer)) if isinstance(answer, SubmissionError) else list(answer) for answer in plan.answers
    ]


def test_a_refusal_names_the_holder_even_if_both_came_together() -> None:
    first, second = (new_task("a", 1, OnDuplicate.REJECT, payload) for payload in ("first", "second"))
    refusal = plan_inbox([[first], [second]], Keys(), first_id=70).answers[1]
    assert isinstance(refusal, DuplicateTask)
    assert refusal.existing_id == 70


def test_within_one_request_the_last_submission_of_a_key_wins() -> None:
    first, last = (new_task("a", 1, OnDuplicate.SKIP, payload) for payload in ("first", "last"))
    store = Store()
    assert store.put([[first, last]]) == [[Stored(1, "inserted"), Stored(1, "inserted")]]
    assert [row.task.payload for row in store.rows.values()] == ["last"]


def test_a_replacement_takes_the_place_in_the_queue_of_a_task_that_waits() -> None:
    holder = Holder(3, Status.PENDING, 9, queued_at=1)
    plan = plan_inbox([[new_task("a", 2, OnDuplicate.SUPERSEDE, "new")]], Keys({("d::t", "a"): holder}), first_id=8)
    assert plan.superseded == [Superseding(3, 8, waits=True)]
    assert [(task.queued_at, task.priority, task.gate_id) for task in plan.fresh] == [(1, 2, None)]


def test_the_id_of_the_place_is_that_of_the_first_task_of_a_chain() -> None:
    new = [[new_task("a", 2, OnDuplicate.SUPERSEDE, str(n))] for n in range(3)]
    assert [task.place_id for task in plan_inbox(new, Keys(), first_id=8).fresh] == [None, 8, 8]
    holder = Holder(3, Status.PENDING, 9, queued_at=1, place_id=2)
    plan = plan_inbox(new, Keys({("d::t", "a"): holder}), first_id=8)
    assert [task.place_id for task in plan.fresh] == [2, 2, 2]


def test_the_place_of_a_task_that_runs_or_is_due_later_is_not_taken_over() -> None:
    for holder in (Holder(3, Status.RUNNING, 9, queued_at=1), Holder(3, Status.SCHEDULED, 9, queued_at=10**15)):
        (task,) = plan_inbox(
            [[new_task("a", 2, OnDuplicate.SUPERSEDE, "new")]], Keys({("d::t", "a"): holder}), first_id=8
        ).fresh
        assert (task.queued_at, task.place_id) == (task.created_at, None)


def test_a_chain_of_replacements_waits_for_the_one_that_runs() -> None:
    holder = Holder(3, Status.RUNNING, 9, queued_at=1)
    new = [[new_task("a", 2, OnDuplicate.SUPERSEDE, str(n))] for n in range(3)]
    plan = plan_inbox(new, Keys({("d::t", "a"): holder}), first_id=8)
    assert plan.superseded == [Superseding(3, 8, False), Superseding(8, 9, True), Superseding(9, 10, True)]
    assert [task.gate_id for task in plan.fresh] == [3, 3, 3]
    assert [task.stop for task in plan.fresh] == ["supersede", "supersede", None]
