"""Cycles with stored tasks: one is found if and only if it exists, at a cost that grows with the request."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskmill.errors import CyclicDependency
from taskmill.model.status import OnDuplicate, Status
from taskmill.model.task import Links, NewTask
from taskmill.policy.dependencies import tie
from taskmill.policy.duplicates import Holder, Name
from taskmill.store.sql import inbox
from taskmill.store.sqlite.migrate import migrate
from taskmill.store.sqlite.session import Session
from tests.store.contract.samples import NOW, new_task

PARENT = 50


def task(
    *depends_on: int | str,
    ref: str | None = None,
    key: str | None = None,
    parent: int | None = None,
    on_duplicate: OnDuplicate = OnDuplicate.SUPERSEDE,
) -> NewTask:
    return new_task(key=key, on_duplicate=on_duplicate, links=Links(parent, depends_on=depends_on, ref=ref))


def holding(**ids: int) -> dict[Name, Holder]:
    return {("d::t", key): Holder(id, Status.RUNNING, 1, queued_at=1) for key, id in ids.items()}


def test_a_task_awaited_through_others_of_the_request_is_found() -> None:
    request = [task(ref="a", key="k"), task(7, key="k"), task("a", ref="b")]
    assert tie(request, {}).awaited == {7}
    assert tie([task(7, ref="a"), task("a", parent=PARENT)], {}).closes_cycle([(7, 8), (8, PARENT)])
    assert not tie([task(7, ref="a"), task(ref="b", parent=PARENT)], {}).closes_cycle([(7, 8), (8, PARENT)])


def test_a_duplicate_is_the_stored_task_and_waits_for_what_that_waits_for() -> None:
    request = [task(9, ref="a", key="k", on_duplicate=OnDuplicate.SKIP), task("a", parent=PARENT)]
    knot = tie(request, holding(k=7))
    assert knot.awaited == {7}, "the dependencies of a duplicate are not stored"
    assert knot.closes_cycle([(7, PARENT)])


def test_a_replacement_takes_the_place_of_the_old_task_and_not_its_needs() -> None:
    assert tie([task(7, key="k")], holding(k=5)).closes_cycle([(7, 6), (6, 5)])
    assert tie([task(5, key="k")], holding(k=5)).closes_cycle([])
    assert not tie([task(7, key="k")], holding(k=5)).closes_cycle([(5, 7)])
    both = [task(7, key="k"), task(8, key="l")]
    assert tie(both, holding(k=5, l=6)).closes_cycle([(7, 6), (8, 5)]), "each waits for a task that the other replaces"
    assert not tie(both, holding(k=5, l=6)).closes_cycle([(7, 6)])


stored_waits = st.lists(
    st.tuples(st.integers(1, 8), st.integers(1, 8)).filter(lambda pair: pair[0] > pair[1]), max_size=10
)
shapes = st.lists(st.lists(st.integers(0, 3) | st.sampled_from([101, 103, 105, 108]), max_size=2), max_size=4)


@given(shapes, st.permutations([None, None, 2, 4, 6]), stored_waits)
def test_a_cycle_is_found_if_and_only_if_there_is_one(
    needs: list[list[int]], replaces: list[int | None], waits: list[tuple[int, int]]
) -> None:
    """``0..3`` are refs, ``101..108`` the stored tasks 1 to 8; a submission may replace one of these."""
    keys = [None if id is None else f"k{id}" for id in replaces]
    request = [
        task(*(str(n) if n < 100 else n - 100 for n in wanted if n < len(needs) or n > 100), ref=str(at), key=keys[at])
        for at, wanted in enumerate(needs)
    ]
    holders = holding(**{f"k{id}": id for id in replaces[: len(needs)] if id is not None})
    instead = {id: -1 - at for at, id in enumerate(replaces[: len(needs)]) if id is not None}
    edges = {(instead.get(a, a), instead.get(b, b)) for a, b in waits if a not in instead}
    for at, wanted in enumerate(needs):
        for n in wanted:
            if n > 100:
                edges.add((-1 - at, instead.get(n - 100, n - 100)))
            elif n < len(needs):
                edges.add((-1 - at, -1 - n))
    reached = set(edges)
    while more := {(a, d) for a, b in reached for c, d in edges if b == c} - reached:
        reached |= more
    assert tie(request, holders).closes_cycle(waits) == any(a == b for a, b in reached)


# In the store


@pytest.fixture
def database() -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    migrate(connection, ":memory:")
    yield connection
    connection.close()


@contextmanager
def counted_calls() -> Iterator[list[int]]:
    calls = [0]

    def count(_frame: FrameType, event: str, _argument: object) -> None:
        calls[0] += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        yield calls
    finally:
        sys.setprofile(before)


@pytest.mark.parametrize("keyed", [False, True])
def test_a_chain_of_references_costs_as_much_as_it_is_long(database: sqlite3.Connection, keyed: bool) -> None:
    (((parent,),), _) = inbox.insert(Session(database), [[new_task()]], NOW)  # type: ignore[misc]

    def chain(length: int) -> list[NewTask]:
        return [
            task(*([f"r{n - 1}"] if n else []), ref=f"r{n}", key=f"{length}:{n}" if keyed else None, parent=parent.id)
            for n in range(length)
        ]

    def cost(length: int) -> int:
        tasks = chain(length)
        inbox.insert(Session(database), [tasks], NOW)  # with keys, the second time all of them are replaced
        with counted_calls() as calls:
            (answer,), _ = inbox.insert(Session(database), [tasks], NOW)
        assert isinstance(answer, list)
        return calls[0]

    short, long = cost(100), cost(400)
    assert long < short * 5


def test_replacing_an_ancestor_says_so(database: sqlite3.Connection) -> None:
    (((root,),), _) = inbox.insert(Session(database), [[new_task(key="k")]], NOW)  # type: ignore[misc]
    (((middle,),), _) = inbox.insert(Session(database), [[task(parent=root.id)]], NOW)  # type: ignore[misc]
    (refusal,), _ = inbox.insert(Session(database), [[task(key="k", parent=middle.id)]], NOW)
    assert isinstance(refusal, CyclicDependency)
    assert f"task {root.id} is an ancestor" in str(refusal)
    assert "requeue" in str(refusal)
    assert msgspec.json.decode(database.execute("SELECT json_array(count(*)) FROM taskmill_task").fetchone()[0]) == [2]
