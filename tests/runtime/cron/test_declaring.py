"""Declarations win over stored state: new, preserved, changed and removed tasks, and their log messages."""

from __future__ import annotations

import logging
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from taskmill import ConfigError, Domain, Scheduler
from taskmill.cron import Cron, CronScheduler, DuplicateRegistration, InvalidCronExpression, InvalidRegistration
from tests.runtime.cron.bench import TEN, Bench

HOURLY = "0 * * * *"


async def lived(file: Path, bench: Bench, seconds: float, *cron: Cron, **settings: Any) -> list[Any]:
    """Run a scheduler with these declarations for so many seconds; return its history."""
    async with Scheduler(file, cron=cron, clock=bench.clock, **settings) as scheduler:
        async with scheduler.running():
            await bench.clock.advance(seconds)
        return await scheduler.history()


def differences(caplog: pytest.LogCaptureFixture) -> list[tuple[Any, ...]]:
    found = [record for record in caplog.records if record.name == "taskmill.cron" and hasattr(record, "added")]
    return [(record.added, record.removed, record.modified, record.total) for record in found]  # type: ignore[attr-defined]


async def test_the_difference_is_logged_once_per_start_and_only_if_there_is_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    bench, file = Bench(TEN + timedelta(minutes=1)), tmp_path / "t.db"
    a, b = Cron("a", HOURLY, bench.handler(), 60), Cron("b", HOURLY, bench.handler(), 60)
    for cron in ([a, b], [a, b], [Cron("a", "0  * * * *", a.handler, 61), Cron("c", HOURLY, a.handler, 1)], []):
        await lived(file, bench, 1, *cron)
    old, new = timedelta(seconds=60), timedelta(seconds=61)
    modified = [
        {"name": "a", "field": "expression", "from": HOURLY, "to": "0  * * * *"},
        {"name": "a", "field": "retry_delay", "from": old, "to": new},
    ]
    assert differences(caplog) == [
        (["a", "b"], [], [], 2),
        (["c"], ["b"], modified, 4),
        ([], ["a", "c"], [], 2),
    ]


async def test_a_pending_retry_keeps_its_time_and_the_one_after_it_has_the_new_delay(tmp_path: Path) -> None:
    bench, file = Bench(), tmp_path / "t.db"
    handler = bench.handler(ValueError("no"), ValueError("no"))
    await lived(file, bench, 60, Cron("tick", HOURLY, handler, 600))
    await lived(file, bench, 3000, Cron("tick", HOURLY, handler, 120))
    assert bench.starts == ["10:00:00", "10:10:00", "10:12:00"]


async def test_a_pending_retry_is_done_by_the_handler_that_is_declared_now(tmp_path: Path) -> None:
    bench, file, domain = Bench(), tmp_path / "t.db", Domain("d")

    @domain.task(key="k")
    async def work() -> None:
        bench.starts.append(f"task {bench.time}")
        raise ValueError("no")

    await lived(file, bench, 60, Cron("tick", HOURLY, bench.handler(ValueError("no"), name="old"), 600))
    await lived(file, bench, 600, Cron("tick", HOURLY, work, 600))
    await lived(file, bench, 1200, Cron("tick", HOURLY, bench.handler(name="new"), 600))
    assert bench.starts == ["old 10:00:00", "task 10:10:00", "new 10:20:00"]


async def test_a_cron_task_that_is_no_longer_declared_is_cancelled_and_forgotten(tmp_path: Path) -> None:
    bench, file = Bench(), tmp_path / "t.db"
    await lived(file, bench, 60, Cron("tick", HOURLY, bench.handler(ValueError("no")), 600))
    history = await lived(file, bench, 60)
    assert [task.ending for task in history] == ["cancelled"]
    await lived(file, bench, 3600, Cron("tick", HOURLY, bench.handler(), 600))
    assert bench.starts == ["10:00:00", "11:00:00"], "as if it was new"


async def test_a_changed_schedule_is_judged_by_the_last_attempt_under_the_old_one(tmp_path: Path) -> None:
    bench, file = Bench(), tmp_path / "t.db"
    await lived(file, bench, 1800, Cron("tick", HOURLY, bench.handler(), 1))
    await lived(file, bench, 0, Cron("tick", "20 * * * *", bench.handler(), 1))
    assert bench.starts == ["10:00:00", "10:30:00"], "10:20 has passed since the last attempt"


async def test_declarations_in_another_order_change_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    bench, file = Bench(TEN + timedelta(minutes=1)), tmp_path / "t.db"
    cron = [Cron(name, HOURLY, bench.handler(), 1) for name in "abc"]
    await lived(file, bench, 1, *cron)
    async with Scheduler(file, cron=cron[::-1], clock=bench.clock) as scheduler:
        await scheduler.run_until_idle()
        names = [schedule.cron for schedule in (await scheduler.snapshot()).schedules]
    assert names == ["c", "b", "a"]
    assert len(differences(caplog)) == 1


GOOD = ("good", HOURLY, dict, 1)


def _needs(argument: int) -> int:
    return argument


_DOMAIN = Domain("d")


@_DOMAIN.task
async def _task(argument: int) -> int:
    return argument


@_DOMAIN.task
async def _free() -> None: ...


BAD: list[tuple[Any, type[Exception], str]] = [
    ("a string", ConfigError, "must be a list or tuple"),
    ({GOOD}, ConfigError, "must be a list or tuple"),
    (None, ConfigError, "must be a list or tuple"),
    ([GOOD, ["x", HOURLY, dict, 1]], InvalidRegistration, "must be a Cron or a tuple"),
    ([GOOD, ("x", HOURLY, dict)], InvalidRegistration, "4 parts"),
    ([GOOD, (5, HOURLY, dict, 1)], InvalidRegistration, "name must be text"),
    ([GOOD, ("  ", HOURLY, dict, 1)], InvalidRegistration, "name must not be empty"),
    ([GOOD, ("x", HOURLY, "dict", 1)], InvalidRegistration, "handler must be"),
    ([GOOD, ("x", HOURLY, _needs, 1)], InvalidRegistration, "handler must need no arguments"),
    ([GOOD, ("x", HOURLY, _task, 1)], InvalidRegistration, "handler must need no arguments"),
    ([GOOD, ("x", HOURLY, _free.options(every=5), 1)], InvalidRegistration, "must not have the option every"),
    ([GOOD, GOOD], DuplicateRegistration, "good"),
    ([GOOD, ("x", "*/5 * * * *", dict, 1)], InvalidRegistration, "minute"),
    ([GOOD, ("x", HOURLY, dict, -1)], InvalidRegistration, "retry_delay"),
    ([GOOD, ("x", HOURLY, dict, float("nan"))], InvalidRegistration, "retry_delay"),
]


@pytest.mark.parametrize(("given", "kind", "says"), BAD, ids=[f"{number}" for number in range(len(BAD))])
async def test_a_bad_list_is_refused_before_anything_is_stored(
    tmp_path: Path, given: Any, kind: type[Exception], says: str
) -> None:
    file = tmp_path / "t.db"
    with pytest.raises(kind, match=says) as of_scheduler:
        Scheduler(file, cron=given)
    cron = CronScheduler(file)
    with pytest.raises(kind, match=says) as of_cron:
        await cron.initialize(given)
    assert not file.exists()
    assert str(of_scheduler.value).replace("cron must", "registrations must") == str(of_cron.value)
    if isinstance(of_cron.value, InvalidRegistration):
        assert of_cron.value.index == 1
        if "minute" in says:
            assert isinstance(of_cron.value.__cause__, InvalidCronExpression)
    await cron.initialize([GOOD])
    await cron.stop()


@pytest.mark.one_engine("no store is opened")
def test_the_domain_of_plain_callables_is_not_for_others() -> None:
    with pytest.raises(ConfigError, match="domains: the name 'cron'"):
        Scheduler(domains=[Domain("cron")], cron=[GOOD])
