"""``scheduler.provide``: state for handlers that is added after the scheduler was constructed."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from taskmill import ConfigError, Context, Domain, HistoryRecord, Retry, Scheduler, blocking
from tests.acceptance import process_state


class Service:
    def __init__(self, name: str) -> None:
        self.name = name


class Better(Service):
    pass


class Other:
    pass


def _domain(name: str = "d", **options: Any) -> tuple[Domain, Any]:
    domain = Domain(name, retry=Retry.none(), **options)

    @domain.task
    async def ask(ctx: Context) -> str:
        return ctx.state(Service).name

    return domain, ask


async def _answer(scheduler: Scheduler, task: Any) -> str:
    handle = await scheduler.submit(task.prepare())
    await scheduler.run_until_idle(timeout=10)
    record = await handle.wait()
    return str(record.result or record.error)


async def test_an_object_may_be_provided_before_or_after_opening() -> None:
    domain, ask = _domain()
    scheduler = Scheduler(domains=[domain])
    scheduler.provide(Service("early"), Other())
    async with scheduler:
        assert await _answer(scheduler, ask) == "early"
    async with Scheduler(domains=[domain]) as later:
        assert "scheduler.provide" in await _answer(later, ask)
        later.provide(Service("late"))
        assert await _answer(later, ask) == "late"


async def test_the_state_of_a_domain_comes_before_that_of_the_scheduler() -> None:
    (one, ask_one), (two, ask_two) = _domain("one"), _domain("two")
    async with Scheduler(domains=[one, two], state=[Service("shared")]) as scheduler:
        scheduler.provide(Service("own"), domain="one")
        assert [await _answer(scheduler, ask_one), await _answer(scheduler, ask_two)] == ["own", "shared"]
        scheduler.provide(Better("better"), domain=two)
        assert await _answer(scheduler, ask_two) == "shared", "the exact type comes before a subclass"


async def test_a_subclass_of_the_domain_comes_before_one_of_the_scheduler() -> None:
    class Best(Service):
        pass

    domain, ask = _domain(state=[Best("domain")])
    async with Scheduler(domains=[domain], state=[Better("scheduler")]) as scheduler:
        assert await _answer(scheduler, ask) == "domain"


async def test_state_of_one_scheduler_is_not_in_another() -> None:
    domain, ask = _domain()
    async with Scheduler(domains=[domain]) as first, Scheduler(domains=[domain]) as second:
        first.provide(Service("first"), domain=domain)
        assert await _answer(first, ask) == "first"
        assert "no state of type Service" in await _answer(second, ask)


@pytest.mark.one_engine("no store is opened")
def test_a_second_object_of_one_type_in_one_place_is_refused_and_nothing_is_kept() -> None:
    domain, _ = _domain()
    scheduler = Scheduler(domains=[domain], state=[Service("a")])
    with pytest.raises(ConfigError, match="already an object of type Service"):
        scheduler.provide(Other(), Service("b"))
    scheduler.provide(Other())
    scheduler.provide(Service("c"), domain="d")
    with pytest.raises(ConfigError, match="Service"):
        scheduler.provide(Service("d"), domain="d")
    with pytest.raises(ConfigError, match="Service"):
        Scheduler(state=[Service("a"), Service("b")])
    with pytest.raises(ConfigError, match="Service"):
        Domain("e", state=[Service("a"), Service("b")])


@pytest.mark.one_engine("no store is opened")
@pytest.mark.parametrize(("wrong", "name"), [(None, "None"), (Service, "the class Service")])
def test_none_and_classes_are_no_state(wrong: Any, name: str) -> None:
    domain, _ = _domain()
    scheduler = Scheduler(domains=[domain])
    for give in (
        lambda: scheduler.provide(wrong),
        lambda: scheduler.provide(wrong, domain="d"),
        lambda: Scheduler(state=[wrong]),
        lambda: Domain("e", state=[wrong]),
    ):
        with pytest.raises(ConfigError, match=rf"state: give objects .* not {name}"):
            give()


@pytest.mark.one_engine("no store is opened")
@pytest.mark.parametrize("domain", ["x", Domain("x"), 5, ["d"]])
def test_a_domain_that_the_scheduler_does_not_have_is_refused(domain: Any) -> None:
    with pytest.raises(ConfigError, match=r"no domain .*; it has: d"):
        Scheduler(domains=[_domain()[0]]).provide(Other(), domain=domain)


def test_a_blocking_scheduler_is_provided_with_state_too() -> None:
    domain, ask = _domain()
    scheduler = blocking.Scheduler(domains=[domain])
    scheduler.provide(Service("early"))
    with scheduler:
        scheduler.provide(Service("late"), domain="d")
        handle = scheduler.submit(ask.prepare())
        scheduler.run_until_idle(timeout=10)
        assert handle.result() == "late"


@pytest.mark.skipif(sys.platform == "win32", reason="worker processes need POSIX")
async def test_a_handler_in_a_process_learns_that_state_stays_in_the_schedulers_process() -> None:
    async with Scheduler(domains=[process_state.domain]) as scheduler:
        scheduler.provide(process_state.Service())
        handle = await process_state.ask.submit()
        await scheduler.run_until_idle(timeout=30)
        record = await handle.record()
    assert isinstance(record, HistoryRecord)
    assert record.error is not None
    assert "Service lives in the scheduler's process" in record.error
