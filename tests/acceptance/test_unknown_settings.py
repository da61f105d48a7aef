"""An unknown setting is a ``ConfigError`` that names it; errors of ``taskmill.blocking`` are ``TaskmillError``."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from taskmill import (
    Aging,
    ConfigError,
    Domain,
    Group,
    InvalidState,
    IoBudget,
    RateLimit,
    Resources,
    Retention,
    Retry,
    Scheduler,
    TaskmillError,
    ThrottlePolicy,
    blocking,
)
from taskmill.asgi import lifespan
from taskmill.cron import Cron, CronScheduler

VALUES: list[Callable[..., Any]] = [
    Scheduler,
    blocking.Scheduler,
    Group,
    Aging,
    IoBudget,
    RateLimit,
    RateLimit.per_second,
    RateLimit.per_minute,
    Resources,
    Retention,
    Retry,
    Retry.none,
    Retry.constant,
    Retry.linear,
    Retry.exponential,
    ThrottlePolicy,
    Cron,
    CronScheduler,
    lifespan,
    Scheduler().provide,
    Scheduler().events,
]


@pytest.mark.one_engine("it is refused before there is a store")
@pytest.mark.parametrize("make", VALUES, ids=lambda make: f"{make.__module__}.{make.__qualname__}")
def test_an_unknown_setting_is_refused_by_its_name(make: Callable[..., Any]) -> None:
    with pytest.raises(ConfigError, match="bogus"):
        make(bogus=1)


@pytest.mark.one_engine("it is refused before there is a store")
def test_the_error_names_a_similar_setting() -> None:
    with pytest.raises(ConfigError, match=r"Scheduler has no setting 'max_concurency'; did you mean max_concurrency\?"):
        Scheduler(max_concurency=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    with pytest.raises(ConfigError, match="Group has no setting 'colour'; it has weight, cap, min_slots, rate"):
        Group(colour="red")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


@pytest.mark.one_engine("it is refused before there is a store")
@pytest.mark.parametrize("make", [RateLimit, Retry.constant, Cron, Domain], ids=lambda make: make.__qualname__)
def test_missing_and_surplus_settings_are_refused_too(make: Callable[..., Any]) -> None:
    with pytest.raises(ConfigError, match=make.__qualname__):
        make()
    with pytest.raises(ConfigError, match=make.__qualname__):
        make(*range(20))


@pytest.mark.one_engine("no store is opened")
def test_a_blocking_scheduler_that_is_not_open_says_so() -> None:
    scheduler = blocking.Scheduler()
    for call in (scheduler.snapshot, scheduler.run_until_idle, lambda: scheduler.get(1), scheduler.stop):
        with pytest.raises(InvalidState, match="not open"):
            call()
    with pytest.raises(TaskmillError), scheduler:
        raise ConfigError("on the way")


def test_an_unknown_setting_of_a_group_is_refused_by_its_name() -> None:
    with blocking.Scheduler() as scheduler:
        group: Any = scheduler.group("g")
        for change in (group.set, group.pause):
            with pytest.raises(ConfigError, match="bogus"):
                change(bogus=1)


def test_waiting_in_vain_is_an_error_of_taskmill_and_a_timeout() -> None:
    domain = Domain("d")

    @domain.task
    async def work() -> None:
        await asyncio.sleep(3600)

    with blocking.Scheduler(domains=[domain], shutdown_grace=0) as scheduler:
        handle = scheduler.submit(work.prepare())
        waits: list[Callable[[], Any]] = [
            lambda: handle.result(timeout=0.01),
            lambda: handle.wait(timeout=0.01),
            lambda: scheduler.run_until_idle(timeout=0.01),
        ]
        for wait in waits:
            with pytest.raises(TimeoutError) as caught:
                wait()
            assert isinstance(caught.value, TaskmillError)


def test_a_blocking_method_refuses_arguments_that_it_does_not_have() -> None:
    domain = Domain("d")

    @domain.task
    async def work() -> None: ...

    with blocking.Scheduler(domains=[domain]) as scheduler:
        handle: Any = scheduler.submit(work.prepare())
        door: Any = scheduler
        for call in (door.prune, door.events, door.page, door.forecast, handle.result, door.group("g").pause):
            with pytest.raises(ConfigError, match="bogus"):
                call(bogus=1)
        for call in (door.get, door.wait, door.domain("d").set_max_concurrency):
            with pytest.raises(ConfigError, match="missing a required argument"):
                call()


def test_the_error_of_a_blocking_method_names_the_public_class() -> None:
    with blocking.Scheduler() as scheduler:
        door: Any = scheduler
        for call in (door.forecast, door.wait):
            with pytest.raises(ConfigError, match=rf"^Scheduler\.{call.__name__} has no setting 'bogus'; it has "):
                call(bogus=1)


def test_a_call_that_waits_while_another_thread_closes_ends_with_an_error() -> None:
    domain = Domain("d")

    @domain.task
    async def work() -> None: ...

    errors: list[BaseException] = []
    waits = threading.Event()
    with blocking.Scheduler(domains=[domain]) as scheduler:
        handle = scheduler.submit(work.prepare())

        def wait() -> None:
            waits.set()
            try:
                handle.result()
            except BaseException as wrong:
                errors.append(wrong)

        thread = threading.Thread(target=wait)
        thread.start()
        waits.wait()
    thread.join(10)
    assert not thread.is_alive()
    assert [type(wrong) for wrong in errors] == [InvalidState]
