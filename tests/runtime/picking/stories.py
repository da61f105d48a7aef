"""Random programs for worlds of the picker: declarations and steps, as Hypothesis strategies."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import strategies as st

from taskmill import Aging, Group, RateLimit
from taskmill.model.controls import EVERYTHING, Change, Declared, Scope, ScopeKind
from tests.runtime.picking.world import World

GROUPS = ["", "a", "b", "c"]
TYPES = ["d::t", "d::u", "e::t"]


class Step:
    """A step of a world, with a readable representation for failures."""

    def __init__(self, what: str, act: Callable[[World], object], *about: object) -> None:
        self._what = what
        self._act = act
        self._about = about

    def __repr__(self) -> str:
        return f"{self._what}{self._about}"

    def __call__(self, world: World) -> None:
        self._act(world)


rates = st.sampled_from([RateLimit(1, 10), RateLimit(2, 5, burst=1), RateLimit(3, 1, burst=4)])
plain_groups = st.builds(Group, cap=st.sampled_from([None, None, 1, 3]), rate=st.none() | rates)
shared_groups = st.builds(
    Group,
    weight=st.sampled_from([1, 2, 3, 100]),
    cap=st.sampled_from([None, None, 2, 3]),
    min_slots=st.sampled_from([0, 0, 1, 2]),
    rate=st.none() | rates,
)
agings = st.sampled_from(
    [None, Aging(grace=5, interval=1, step=40, ceiling=0, urgent=30), Aging(grace=2, interval=2, step=7, ceiling=64)]
)
limits = {
    "max_concurrency": st.integers(1, 6),
    "domain_caps": st.dictionaries(st.sampled_from(["d", "e"]), st.integers(1, 3)),
    "rates": st.dictionaries(st.sampled_from(TYPES), rates),
    "aging": agings,
}
plain = st.builds(Declared, groups=st.dictionaries(st.sampled_from(GROUPS), plain_groups), **limits)
shared = st.builds(Declared, groups=st.dictionaries(st.sampled_from(GROUPS), shared_groups, min_size=1), **limits)
declarations = st.one_of(plain, shared)
priorities = st.sampled_from([0, 64, 128, 150, 192, 255])
scopes = st.one_of(
    st.just(EVERYTHING),
    st.builds(Scope, st.just(ScopeKind.GROUP), st.sampled_from(GROUPS)),
    st.builds(Scope, st.just(ScopeKind.DOMAIN), st.sampled_from(["d", "e"])),
)
tasks = st.tuples(st.sampled_from(GROUPS), priorities, st.sampled_from(TYPES))


def submits(count: int, task: tuple[str, int, str], age: int | None) -> Step:
    def act(world: World) -> None:
        for _ in range(count):
            world.submit(*task, renewed=age is not None, age=age or 0)

    return Step("submit", act, count, task, age)


def ends(at: int) -> Step:
    def act(world: World) -> None:
        if world.running:
            world.end(world.running[at % len(world.running)])

    return Step("end", act, at)


def cancels(at: int) -> Step:
    def act(world: World) -> None:
        if waiting := list(world.waiting()):
            world.cancel(*waiting[at % len(waiting)])

    return Step("cancel", act, at)


def doubts(at: int) -> Step:
    def act(world: World) -> None:
        if world.disk:
            world.doubt(list(world.disk)[at % len(world.disk)])

    return Step("doubt", act, at)


def passes(ms: int) -> Step:
    def act(world: World) -> None:
        world.now += ms

    return Step("pass", act, ms)


def knows_or_not(type: str) -> Step:
    def act(world: World) -> None:
        world.unknown ^= {type}
        world.picker.look_at_all()

    return Step("knows or not", act, type)


def sets(name: str, change: Change) -> Step:
    def act(world: World) -> None:
        world.changes[Scope(ScopeKind.GROUP, name)] = change
        world.rule()

    return Step("set", act, name, change)


def pauses(scope: Scope) -> Step:
    return Step("pause", lambda world: world.pause(scope), scope)


def has_slots(count: int) -> Step:
    return Step("slots", lambda world: world.rule(max_concurrency=count), count)


indices = st.integers(0, 50)
submissions = st.builds(submits, st.integers(1, 6), tasks, st.sampled_from([None, None, 3000, 20_000]))
surprises: list[st.SearchStrategy[Step]] = [
    tasks.map(lambda task: Step("submit elsewhere", lambda world: world.submit_elsewhere(*task), task)),
    indices.map(cancels),
    indices.map(doubts),
    st.sampled_from(TYPES).map(knows_or_not),
    declarations.map(lambda declared: Step("declare", lambda world: world.rule(declared), declared)),
    st.integers(1, 6).map(has_slots),
    st.builds(sets, st.sampled_from(GROUPS), st.builds(Change, weight=st.sampled_from([1, 5]))),
    scopes.map(pauses),
]
resumptions = scopes.map(lambda scope: Step("resume", lambda world: world.resume(scope), scope))
times = st.sampled_from([1, 400, 1000, 3000, 12_000]).map(passes)
# The relative frequency of each step.
steps = st.sampled_from(
    [submissions] * 5 + [indices.map(ends)] * 12 + [times] * 8 + [resumptions] * 3 + surprises
).flatmap(lambda kind: kind)
stories = st.builds(
    lambda backlog, story: [*backlog, *story],
    st.lists(submissions, min_size=4, max_size=8),
    st.lists(steps, min_size=10, max_size=20),
)
fronts = st.sampled_from([2, 3, 512])
