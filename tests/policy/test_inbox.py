"""Laws of the inbox: what a batch of requests comes to, compared with storing them one by one."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from taskmill.model.stages import NewTask
from taskmill.model.status import OnDuplicate, Status
from taskmill.policy.duplicates import Holder
from taskmill.policy.inbox import Name, Refusal, plan_inbox


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
        created_at=0,
        queued_at=0,
        due_at=None,
        due_is_relative=False,
        expires_at=None,
        on_duplicate=on_duplicate,
    )


tasks = st.builds(
    new_task,
    st.none() | st.sampled_from("abc"),
    st.integers(0, 5),
    st.sampled_from([OnDuplicate.SKIP, OnDuplicate.REJECT]),
    st.uuids().map(str),
)
requests = st.lists(st.lists(tasks, max_size=4), max_size=5)


@dataclass
class Store:
    """A plain model: rows by id, and who holds which key."""

    rows: dict[int, NewTask] = field(default_factory=dict[int, NewTask])
    priorities: dict[int, int] = field(default_factory=dict[int, int])
    next_id: int = 100

    def holders(self) -> dict[Name, Holder]:
        return {
            (row.type, row.key): Holder(id, Status.PENDING, self.priorities[id])
            for id, row in self.rows.items()
            if row.key is not None
        }

    def put(self, requests: list[list[NewTask]]) -> list[object]:
        plan = plan_inbox(requests, self.holders())
        first = self.next_id
        for task in plan.fresh:
            self.rows[self.next_id] = task
            self.priorities[self.next_id] = task.priority
            self.next_id += 1
        self.priorities.update(plan.raised)
        return [
            "refused" if isinstance(answer, Refusal) else [(one.kind, one.stored(first).id) for one in answer]
            for answer in plan.answers
        ]

    def contents(self) -> list[tuple[str | None, int, str]]:
        return [(row.key, self.priorities[id], row.payload) for id, row in self.rows.items()]


@given(requests)
def test_a_batch_comes_to_the_same_as_its_requests_one_by_one(batch: list[list[NewTask]]) -> None:
    together, apart = Store(), Store()
    answers = together.put(batch)
    assert answers == [apart.put([request])[0] for request in batch]
    assert together.contents() == apart.contents()


@given(requests)
def test_no_key_is_held_twice_and_nobody_becomes_less_urgent(batch: list[list[NewTask]]) -> None:
    store = Store()
    store.put(batch)
    keys = [row.key for row in store.rows.values() if row.key is not None]
    assert len(keys) == len(set(keys))
    for id, row in store.rows.items():
        assert store.priorities[id] <= row.priority


@given(requests)
def test_a_refused_request_stores_nothing(batch: list[list[NewTask]]) -> None:
    store = Store()
    answers = store.put(batch)
    payloads = {row.payload for row in store.rows.values()}
    for request, answer in zip(batch, answers, strict=True):
        if answer == "refused":
            assert not payloads & {task.payload for task in request}


def test_a_refusal_names_the_holder_even_if_both_came_together() -> None:
    first, second = (new_task("a", 1, OnDuplicate.REJECT, payload) for payload in ("first", "second"))
    plan = plan_inbox([[first], [second]], {})
    refusal = plan.answers[1]
    assert isinstance(refusal, Refusal)
    assert refusal.error(first_id=70).existing_id == 70


def test_within_one_request_the_last_submission_of_a_key_wins() -> None:
    first, last = (new_task("a", 1, OnDuplicate.SKIP, payload) for payload in ("first", "last"))
    store = Store()
    assert store.put([[first, last]]) == [[("inserted", 100), ("inserted", 100)]]
    assert [row.payload for row in store.rows.values()] == ["last"]
