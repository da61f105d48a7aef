"""Every public value (record, event, snapshot, setting, error) can be copied, compared, pickled and written as JSON."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import json
import pickle
import typing
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from enum import Enum
from types import UnionType
from typing import Any

import msgspec
import pytest

import taskmill
import taskmill.cron
import taskmill.events
from taskmill import (
    Aging,
    Context,
    Domain,
    DuplicateTask,
    Ending,
    Explanation,
    Group,
    Hold,
    IoBudget,
    Projection,
    RateLimit,
    Reading,
    Resources,
    Retention,
    Retry,
    RetryLater,
    Scheduler,
    Submission,
    TaskFailed,
    TaskProgress,
    ThrottlePolicy,
)

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
LIVE = {"Context", "Domain", "Handle", "Scheduler", "Task", "CronScheduler", "PressureSource", "ResourceSampler"}
LIVE |= {"SchedulerSettings", "TaskLogFilter"}
"""These are not values: they belong to a running program, or users write them."""
PROGRAMS = {Submission, Resources, taskmill.cron.Cron, taskmill.cron.CronExpression}
"""These hold Python objects, such as a handler or a sampler."""
KINDS = [
    kind
    for module in (taskmill, taskmill.events, taskmill.cron)
    for name in module.__all__
    if name not in LIVE and isinstance(kind := getattr(module, name), type)
]


class Still:
    """A sampler that can be compared and pickled."""

    def sample(self) -> Reading:
        return Reading()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Still)

    def __hash__(self) -> int:
        return 0


def nothing() -> None: ...


SETTINGS: list[Any] = [
    Aging(grace="5m", urgent=64),
    Group(weight=2, cap=3, rate=RateLimit.per_minute(5)),
    IoBudget(disk_read="1MB", net_tx=5),
    RateLimit(5, "10s", burst=2),
    Resources(Still(), "2s", IoBudget(disk_read=1)),
    Retention(5, "1h", {"completed": 3, "failed": Retention(None), "expired": None}),
    Retry.exponential(5, "1s", "1m", factor=3, jitter=True),
    Submission("d::work", {"a": [1]}, priority=5, tags={"a": "b"}, run_at=NOON, retry=Retry.none()),
    ThrottlePolicy([(128, 0.5)], preempt_above=0.9),
    # Its errors are exceptions, which are never equal and have no JSON form of their own.
    Projection(outcomes=["inserted"], errors={}, phases=[], total_io=IoBudget(), estimated_duration=None),
    taskmill.cron.Cron("name", "* * * * *", nothing, 5),
    taskmill.cron.CronExpression.parse("5 4 * * 1-5"),
]


def sample_of(kind: Any) -> Any:
    """Return a value of this class or annotation."""
    given = [each for each in SETTINGS if type(each) is kind]
    if given:
        return given[0]
    if isinstance(kind, type) and issubclass(kind, Enum):
        return next(iter(kind))
    if isinstance(kind, type) and issubclass(kind, BaseException):
        if not inspect.isfunction(kind.__init__):
            return kind("what happened")
        _, *wanted = inspect.signature(kind.__init__).parameters
        hints = typing.get_type_hints(kind.__init__, localns=vars(taskmill))
        return kind(*(sample_of(hints[name]) for name in wanted))
    if hasattr(kind, "__struct_fields__") or hasattr(kind, "__dataclass_fields__"):
        hints = typing.get_type_hints(kind)
        names = getattr(kind, "__struct_fields__", None) or [field.name for field in dataclasses.fields(kind)]
        return kind(**{name: sample_of(hints[name]) for name in names})
    if isinstance(kind, type) and hasattr(kind, "_fields"):
        return kind(*map(sample_of, typing.get_type_hints(kind).values()))
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    plain: Mapping[Any, Any] = {int: 5, str: "text", float: 0.5, bool: True, object: "any", Any: {"a": [1, None]}}
    plain = {**plain, datetime: NOON, timedelta: timedelta(seconds=1.5), type(None): None}
    if kind in plain:
        return plain[kind]
    if origin is typing.Literal:
        return parts[0]
    if isinstance(kind, typing.TypeVar):
        return 5
    if hasattr(origin, "__struct_fields__"):
        return sample_of(origin)
    if inspect.isclass(origin) and issubclass(origin, Mapping):
        return {sample_of(parts[0]): sample_of(parts[1])}
    if inspect.isclass(origin) and origin is not UnionType:
        return (
            [sample_of(parts[0])]
            if origin is not tuple
            else tuple(sample_of(part) for part in parts if part is not ...)
        )
    return sample_of(parts[0])


def copies(value: Any) -> Iterator[Any]:
    yield copy.copy(value)
    yield copy.deepcopy(value)
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        yield pickle.loads(pickle.dumps(value, protocol))


def check_copies(value: Any) -> None:
    for other in copies(value):
        assert type(other) is type(value)
        if isinstance(value, BaseException):
            assert (str(other), other.args, vars(other)) == (str(value), value.args, vars(value))
        else:
            assert other == value


no_store = pytest.mark.one_engine("no store is opened")


@no_store
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: f"{kind.__module__}.{kind.__name__}")
def test_a_value_of_every_public_class_can_be_copied_compared_and_pickled(kind: type) -> None:
    value = sample_of(kind)
    assert type(value) is kind
    check_copies(value)
    if not isinstance(value, BaseException):
        assert value != object()


@no_store
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: f"{kind.__module__}.{kind.__name__}")
def test_every_record_event_snapshot_and_setting_has_a_json_form(kind: type) -> None:
    if issubclass(kind, BaseException) or kind in PROGRAMS:
        return
    assert json.loads(msgspec.json.encode(sample_of(kind))) is not None


@no_store
def test_there_are_samples_of_many_kinds() -> None:
    assert len(KINDS) > 70
    assert {type(each) for each in SETTINGS} <= set(KINDS)


@no_store
@pytest.mark.parametrize(
    ("one", "same", "other"),
    [
        (Retention(max_age=3600), Retention(max_age="1h"), Retention(max_age="2h")),
        (Retry.constant(3, 1), Retry.constant(3, "1s"), Retry.constant(4, 1)),
        (RateLimit.per_minute(5), RateLimit(5, "60s"), RateLimit.per_second(5)),
        (Aging(grace=60), Aging(grace="1m"), Aging()),
        (Submission("d::a", ttl=60), Submission("d::a", ttl="1m"), Submission("d::a")),
        (Submission("d::a", {"x": 1}), Submission("d::a", {"x": 1}), Submission("d::a", {"x": 2})),
        (IoBudget(net_rx=1000), IoBudget(net_rx="1kB"), IoBudget()),
    ],
    ids=lambda value: type(value).__name__,
)
def test_values_that_mean_the_same_are_equal_however_they_were_written(one: Any, same: Any, other: Any) -> None:
    assert one == same
    assert one != other


@no_store
def test_errors_keep_their_attributes() -> None:
    for wrong in copies(DuplicateTask("held", existing_id=7)):
        assert (str(wrong), wrong.existing_id) == ("held", 7)
    for wrong in copies(RetryLater("busy", after="5s")):
        assert (str(wrong), wrong.after, wrong.after_ms) == ("busy", "5s", 5000)


@no_store
def test_a_prepared_submission_is_equal_to_one_by_name() -> None:
    domain = Domain("d")

    @domain.task
    async def work(path: str) -> None: ...

    prepared = work.options(priority=5).prepare("a")
    check_copies(prepared)
    assert prepared == work.options(priority=5).prepare(path="a")
    assert prepared == Submission("d::work", {"path": "a"}, priority=5)
    assert prepared != work.prepare("a")


async def test_the_values_of_a_real_scheduler_survive_too() -> None:
    domain = Domain("d", group="g")

    @domain.task(retry=Retry.none(), tags={"a": "b"}, io=IoBudget(disk_read=5))
    async def work(ctx: Context, fails: bool) -> dict[str, int]:
        ctx.progress(0.5, "half")
        if fails:
            raise ValueError("no")
        return {"a": 1}

    async with Scheduler(domains=[domain], groups={"g": Group(cap=2, rate=RateLimit.per_second(5))}) as scheduler:
        heard = scheduler.events()
        good, bad = await work.submit(False), await work.submit(True)
        later = await work.options(run_after=60, key="k").submit(False)
        await scheduler.run_until_idle(timeout=10)
        with pytest.raises(TaskFailed) as failure:
            await bad.result()
        seen: list[Any] = [await anext(heard) for _ in range(5)]
        values = [
            *seen,
            failure.value,
            await good.record(),
            await later.record(),
            await later.explain(),
            await scheduler.snapshot(),
            await scheduler.stats("d::work"),
            await scheduler.graph(later.id),
        ]
        assert failure.value.record.ending is Ending.FAILED or failure.value.record.ending is Ending.DEAD_LETTER
    for value in values:
        check_copies(value)
    for wrong in copies(failure.value):
        assert wrong.record == failure.value.record


@no_store
def test_samples_differ_from_other_values_of_their_class() -> None:
    changes: list[Callable[[], tuple[Any, Any]]] = [
        lambda: (TaskProgress(0.5), TaskProgress(0.6)),
        lambda: (Hold("slots", "a"), Hold("slots", "b")),
        lambda: (sample_of(Explanation), msgspec.structs.replace(sample_of(Explanation), ahead=99)),
    ]
    for change in changes:
        one, other = change()
        assert one != other
