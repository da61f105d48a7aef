"""A wrong budget, or a wrong setting about the machine, is refused by its name, and nothing is stored."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from taskmill import (
    ConfigError,
    Context,
    Domain,
    IoBudget,
    Priority,
    Reading,
    Resources,
    Scheduler,
    Submission,
    SubmissionError,
    ThrottlePolicy,
)
from taskmill.pressure import Pressure
from tests.acceptance.box import NAN, SURROGATE, put, refused, shown, unchanged
from tests.raw_rows import raw

BAD_IO: list[object] = [
    5,
    0,
    -1,
    1.5,
    NAN,
    True,
    False,
    "",
    "LEARN",
    "learned",
    "auto",
    '{"disk_write":5}',
    b"learn",
    SURROGATE,
    {},
    {"disk_write": 5},
    [5],
    (1, 2, 3, 4),
    IoBudget,
    object(),
]
BAD_BYTES: list[object] = [-1, 2**53, 10**400, True, 1.5, 1e6, NAN, math.inf, "5", b"5", None, [1], IoBudget()]
AXES = ["disk_read", "disk_write", "net_rx", "net_tx"]


def named(value: object) -> str:
    """Return a name for a value that is the same in every process."""
    return type(value).__name__ if " at 0x" in repr(value) else shown(value)


def ids(values: list[object]) -> list[str]:
    return [f"{i}-{named(value)}" for i, value in enumerate(values)]


@pytest.mark.parametrize("value", BAD_IO, ids=ids(BAD_IO))
@pytest.mark.one_engine("it is refused before the store is asked")
async def test_a_wrong_budget_of_a_call_is_refused_and_nothing_is_stored(
    scheduler: Scheduler, path: Path, value: Any
) -> None:
    async def by_task() -> None:
        await put.options(io=value).submit("a")

    async def by_name() -> None:
        await scheduler.submit(Submission("box::put", {"path": "a"}, io=value))

    async def among_others() -> None:
        await scheduler.submit_many([put.prepare("fine"), Submission("box::put", {"path": "a"}, io=value)])

    for call in (by_task, by_name, among_others):
        await refused(path, call, SubmissionError, "io")


# A function computes the budget from the arguments; its result is checked then.
FIXED = [value for value in BAD_IO if not callable(value)]


@pytest.mark.parametrize("value", FIXED, ids=ids(FIXED))
@pytest.mark.one_engine("it is refused before the store is asked")
def test_a_wrong_budget_of_a_task_type_is_refused_when_it_is_defined(value: Any) -> None:
    domain = Domain("right")
    with pytest.raises(ConfigError, match=r"\bio\b"):
        domain.task(io=value)
    assert domain.types == {}


@pytest.mark.parametrize("value", [*BAD_IO, lambda: None], ids=ids([*BAD_IO, "function"]))
@pytest.mark.one_engine("it is refused before the store is asked")
async def test_a_wrong_budget_that_was_computed_is_refused_and_nothing_is_stored(path: Path, value: Any) -> None:
    domain = Domain("wrong")

    @domain.task(io=lambda i: value)
    async def work(i: int) -> int:
        return i

    async with Scheduler(path, domains=[domain]):

        async def call() -> None:
            await work.submit(1)

        await refused(path, call, SubmissionError, "io")


@pytest.mark.one_engine("it is refused before the store is asked")
async def test_a_function_that_cannot_compute_a_budget_refuses_the_submission(path: Path) -> None:
    domain = Domain("wrong")

    @domain.task(io=lambda i: IoBudget(disk_write=1 // i))
    async def work(i: int) -> int:
        return i

    @domain.task(io=lambda i: IoBudget(disk_write=-i))
    async def negative(i: int) -> int:
        return i

    async with Scheduler(path, domains=[domain]):
        with unchanged(path), pytest.raises((SubmissionError, ConfigError), match=r"\bio\b"):
            await work.submit(0)
        with unchanged(path), pytest.raises((SubmissionError, ConfigError), match=r"\bio\b|disk_write"):
            await negative.submit(5)


@pytest.mark.one_engine("it is refused before the store is asked")
def test_a_domain_has_no_budget() -> None:
    options: dict[str, Any] = {"io": IoBudget(1)}
    with pytest.raises(ConfigError, match="io"):
        Domain("wrong", **options)


@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("value", BAD_BYTES, ids=ids(BAD_BYTES))
@pytest.mark.one_engine("it is refused before the store is asked")
def test_bytes_of_a_budget_are_whole_numbers_that_are_not_too_large(axis: str, value: Any) -> None:
    amounts: dict[str, Any] = {axis: value}
    with pytest.raises(ConfigError, match=axis):
        IoBudget(**amounts)


@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("value", BAD_BYTES, ids=ids(BAD_BYTES))
async def test_a_wrong_report_of_io_is_refused_by_name_and_counts_nothing(path: Path, axis: str, value: Any) -> None:
    domain = Domain("d")
    caught: list[BaseException] = []
    amounts: dict[str, Any] = {axis: value}

    @domain.task
    async def work(ctx: Context) -> None:
        try:
            ctx.record_io(**amounts)
        except BaseException as wrong:
            caught.append(wrong)

    async with Scheduler(path, domains=[domain], durability="process") as scheduler:
        handle = await work.submit()
        await scheduler.run_until_idle(timeout=20)
        record = await handle.wait()
    assert [type(wrong) for wrong in caught] == [ConfigError]
    assert axis in str(caught[0])
    assert record.actual_io is None


class Nameless:
    name = ""

    def pressure(self) -> float:
        return 0.0


class Named:
    name = 5

    def pressure(self) -> float:
        return 0.0


class Mute:
    name = "mute"
    pressure = 0.5


class Sampler:
    def sample(self) -> Reading:
        return Reading()


def calm() -> float:
    return 0.0


BAD_RESOURCES: list[object] = [1, 0, "psutil", [], Resources, Sampler(), Sampler, {"interval": 1}, 1.5]
BAD_SOURCES: list[object] = [Nameless(), Named(), Mute(), Pressure, Nameless]
BAD_THROTTLES: list[object] = [0.5, [(Priority.LOW, 0.5)], {}, ThrottlePolicy, "default", True, ()]
BAD_SETTINGS: list[tuple[str, object]] = [
    *(("resources", value) for value in BAD_RESOURCES),
    *(("pressure", value) for value in (5, None, "cpu", True, Pressure("p", calm), [5], [None], ["cpu"], [calm])),
    *(("pressure", [value]) for value in BAD_SOURCES),
    ("pressure", [Pressure("twin", calm), Pressure("twin", calm)]),
    *(
        ("bandwidth_limit", value)
        for value in (0, -1, 0.0, NAN, math.inf, 2**60, 10**400, True, "1e6", [1], IoBudget(1))
    ),
    *(("throttle", value) for value in BAD_THROTTLES),
]


@pytest.mark.parametrize(
    ("name", "value"),
    [pytest.param(n, v, id=f"{n}-{named(v)}-{i}") for i, (n, v) in enumerate(BAD_SETTINGS)],
)
@pytest.mark.one_engine("it is refused before the store is asked")
def test_a_wrong_setting_about_the_machine_is_refused_by_name(name: str, value: Any) -> None:
    settings: dict[str, Any] = {name: value}
    with pytest.raises(ConfigError, match=name):
        Scheduler(**settings)


@pytest.mark.one_engine("it is refused before the store is asked")
def test_no_source_of_pressure_may_have_the_name_of_the_bandwidth_limit() -> None:
    # The snapshot has one number for each name: one of the two would be lost, and its pressure would not count.
    with pytest.raises(ConfigError, match="bandwidth"):
        Scheduler(pressure=[Pressure("bandwidth", calm)], bandwidth_limit=1_000, resources=Resources(sampler=Sampler()))
    Scheduler(pressure=[Pressure("bandwidth", calm)])


@pytest.mark.parametrize(
    "settings",
    [
        *({"sampler": value} for value in (5, "psutil", Sampler, object(), True, calm)),
        *({"interval": value} for value in (0, -1, 0.001, 3601, NAN, math.inf, True, "1", None, b"1")),
        *({"capacity": value} for value in (5, 1e6, {"disk_write": 5}, IoBudget, True, (1, 2, 3, 4))),
        {"intervall": 1},
    ],
    ids=named,
)
@pytest.mark.one_engine("it is refused before the store is asked")
def test_a_wrong_part_of_resources_is_refused_by_name(settings: dict[str, Any]) -> None:
    (name,) = settings
    with pytest.raises((ConfigError, TypeError), match=name) as caught:
        Resources(**settings)
    assert isinstance(caught.value, ConfigError) or name == "intervall"


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        *(("limits", {"limits": value}) for value in (5, None, "LOW", b"x", [5], [(1,)], [(1, 0.5, 3)], [{1, 2}])),
        *(("priority", {"limits": [(value, 0.5)]}) for value in (-1, 256, True, 1.5, "low", None, NAN)),
        *(("limit", {"limits": [(192, value)]}) for value in (-0.1, 1.1, NAN, math.inf, True, "0.5", None)),
        ("twice", {"limits": [(192, 0.5), (192, 0.6)]}),
        ("never matter", {"limits": [(192, 0.9), (128, 0.5)]}),
        *(
            (name, {name: value, **({"preempt_above": 0.9} if name == "resume_below" else {})})
            for name in ("preempt_above", "resume_below", "easing")
            for value in (-0.1, 1.1, NAN, math.inf, True, "0.5", [0.5])
        ),
        ("easing", {"easing": None}),
        ("resume_below", {"resume_below": 0.5}),
        ("resume_below", {"preempt_above": 0.5, "resume_below": 0.6}),
    ],
    ids=named,
)
@pytest.mark.one_engine("it is refused before the store is asked")
def test_a_wrong_part_of_a_throttle_policy_is_refused_by_name(name: str, settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=name):
        ThrottlePolicy(**settings)


@pytest.mark.one_engine("no store is opened")
def test_sources_of_pressure_may_come_from_any_iterable() -> None:
    Scheduler(pressure=(Pressure(name, calm) for name in ("a", "b")))
    Scheduler(pressure={Pressure("a", calm)})
    Scheduler(pressure=())


# What travels


async def test_a_budget_travels_with_a_submission_by_name(path: Path) -> None:
    domain = Domain("far")

    @domain.task(io=IoBudget(disk_write=7))
    async def fixed(n: int) -> None: ...

    @domain.task(io="learn")
    async def learned(n: int) -> None: ...

    @domain.task(io=lambda n: IoBudget(net_tx=n))
    async def computed(n: int) -> None: ...

    @domain.task
    async def plain(n: int) -> None: ...

    async with Scheduler(path, domains=[domain]), Scheduler(path) as stranger:
        found: dict[str, IoBudget | None] = {}
        for name in ("fixed", "learned", "plain"):
            found[name] = (await (await stranger.submit(Submission(f"far::{name}", {"n": 3}))).record()).io
        said = await stranger.submit(Submission("far::plain", {"n": 3}, io=IoBudget(net_rx=9)))
        other = await stranger.submit(Submission("far::fixed", {"n": 3}, io=IoBudget(net_rx=9)))
        none = await stranger.submit(Submission("far::fixed", {"n": 3}, io=None))
        learns = await stranger.submit(Submission("far::fixed", {"n": 3}, io="learn"))
        records = [(await handle.record()).io for handle in (said, other, none, learns)]
    assert found == {"fixed": IoBudget(disk_write=7), "learned": None, "plain": None}
    assert records == [IoBudget(net_rx=9), IoBudget(net_rx=9), None, None]
    assert _stored_io(path) == ['{"disk_write":7}', "learn", None, '{"net_rx":9}', '{"net_rx":9}', None, "learn"]


def _stored_io(path: Path) -> list[str | None]:
    with raw(path) as connection:
        return [row[0] for row in connection.execute("SELECT io FROM taskmill_task ORDER BY id").fetchall()]
