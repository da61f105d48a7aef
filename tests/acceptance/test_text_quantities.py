"""A duration or a size may be a text such as ``"1h30m"`` or ``"64MB"``: in options, settings, verbs and flags."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import taskmill
from taskmill import (
    Aging,
    ConfigError,
    Context,
    Domain,
    IoBudget,
    RateLimit,
    Reading,
    Resources,
    Retention,
    Retry,
    RetryLater,
    Scheduler,
    Submission,
    blocking,
)
from taskmill.cron import Cron, CronScheduler
from taskmill.model.settings import chosen_retention
from taskmill.pressure import NetworkPressure
from taskmill.testing import ManualClock, context
from tests.acceptance.command_line import Here

AXES = ("disk_read", "disk_write", "net_rx", "net_tx")

PACKAGE = Path(taskmill.__file__).parent
INTERNAL = {"OutOfReach.wait.timeout", "HandlesTasks.wait.timeout", "TuneMethods._checked_end.duration"}

texts = Domain("texts", ttl="1h", timeout="10s")


@texts.task(ttl="1h", timeout="10s")
async def work() -> int:
    return 1


async def tick() -> None: ...


def _called(call: Any, name: str, text: str) -> Callable[[], object]:
    return partial(call, **{name: text})


SETTINGS: dict[str, Callable[[], object]] = {
    "Retry.constant.delay": lambda: Retry.constant(1, "10s"),
    "Retry.linear.initial": lambda: Retry.linear(1, "1s", "1s", "1m"),
    "Retry.linear.increment": lambda: Retry.linear(1, 1, "1s", 60),
    "Retry.linear.maximum": lambda: Retry.linear(1, 1, 1, "1m"),
    "Retry.exponential.initial": lambda: Retry.exponential(1, "1s", "1m"),
    "Retry.exponential.maximum": lambda: Retry.exponential(1, 1, "1m"),
    "RateLimit.__init__.interval": lambda: RateLimit(1, "1h30m"),
    "Aging.__init__.grace": lambda: Aging(grace="5m"),
    "Aging.__init__.interval": lambda: Aging(interval="1m"),
    "Retention.max_age": lambda: Retention(max_age="30d"),
    "RetentionLimits.max_age": lambda: chosen_retention(None, {"max_age": "30d"}),
    "Resources.interval": lambda: Resources(interval="500ms"),
    "RetryLater.__init__.after": lambda: RetryLater("x", after="10s"),
    "NetworkPressure.__init__.limit": lambda: NetworkPressure("10MB"),
    "Cron.retry_delay": lambda: Scheduler(cron=[Cron("n", "* * * * *", tick, "10s")]),
    **{f"IoBudget.__init__.{axis}": _called(IoBudget, axis, "1MB") for axis in AXES},
    **{f"Context.record_io.{axis}": _called(context().record_io, axis, "1MB") for axis in AXES},
    "Progress.bytes.total": lambda: context().progress.bytes("1MB"),
    "Progress.advance.n": lambda: context().progress.advance("500kB"),
    **{f"DomainOptions.{name}": _called(partial(Domain, "d"), name, "1h") for name in ("ttl", "timeout")},
    **{f"TypeOptions.{name}": _called(Domain("d").task, name, "1h") for name in ("ttl", "timeout")},
    **{
        f"CallOptions.{name}": _called(partial(Submission, "d::t"), name, "1h")
        for name in ("ttl", "timeout", "run_after", "every")
    },
    **{
        f"{owner}.{name}": _called(Scheduler, name, "1h")
        for owner in ("SchedulerSettings", "Scheduler.__init__")
        for name in ("default_ttl", "expiry_sweep_interval", "cancel_timeout", "shutdown_grace")
    },
}

AHEAD = ("forecast.horizon", "simulate.horizon", "simulate.replay")
VERBS = {
    *("Scheduler.run_until_idle.timeout", "Scheduler.stop.grace", "Scheduler.wait.timeout"),
    *("CronScheduler.stop.timeout", "Handle.result.timeout", "Handle.wait.timeout", "GroupControl.pause.duration"),
    *("ManualClock.advance.duration", "ManualClock.jump.duration", "ManualClock.sleep.duration"),
    *("BrowseMethods.activity.period", "BlockingBrowseMethods.activity.period"),
    *(f"{owner}.{name}" for owner in ("LookAheadMethods", "BlockingBrowseMethods") for name in AHEAD),
    *("Scheduler.error_groups.since", "ReadMethods.error_groups.since"),
    *("WaitMethods.wait.timeout", "RunMethods.run_until_idle.timeout", "RunMethods.stop.grace"),
}


def _quantities(node: ast.AST, names: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield every parameter and field below a node that is annotated as a duration or a size."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _quantities(child, (*names, child.name))
        elif isinstance(child, ast.arguments):
            for argument in (*child.posonlyargs, *child.args, *child.kwonlyargs):
                if argument.annotation is not None and _is_quantity(argument.annotation):
                    yield ".".join((*names, argument.arg))
        elif isinstance(child, ast.AnnAssign) and names and _is_quantity(child.annotation):
            yield ".".join((*names, ast.unparse(child.target)))
        elif isinstance(child, ast.stmt):
            yield from _quantities(child, names)


def _is_quantity(annotation: ast.expr) -> bool:
    return re.search(r"\b(Duration|Size)\b", ast.unparse(annotation)) is not None


@pytest.mark.one_engine("no store is opened")
def test_every_duration_and_size_of_the_package_is_shown_here() -> None:
    found = {name for path in PACKAGE.rglob("*.py") for name in _quantities(ast.parse(path.read_text("utf-8")))}
    assert found - INTERNAL == {*SETTINGS, *VERBS}


@pytest.mark.one_engine("no store is opened")
@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_takes_a_text(name: str) -> None:
    SETTINGS[name]()


@pytest.mark.one_engine("no store is opened")
def test_rates_of_bytes_take_a_text() -> None:
    Scheduler(bandwidth_limit="10MB")
    assert Reading(disk_read="1MB").disk_read == 1_000_000  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="net_tx is written as"):
        Reading(net_tx="fast")  # type: ignore[arg-type]


async def test_verbs_take_a_text(tmp_path: Path) -> None:
    async with Scheduler(tmp_path / "tasks.db", domains=[texts]) as scheduler:
        handle = await work.submit()
        await scheduler.group("g").pause(duration="10m")
        await scheduler.run_until_idle("10s")
        assert await handle.result("1s") == 1
        await handle.wait("1s")
        await scheduler.wait(handle.id, "1s")
        assert (await scheduler.activity("1h")).ended == {"completed": 1}
        assert await scheduler.error_groups("1h") == []
        await scheduler.forecast("1h", samples=1)
        await scheduler.simulate({"max_concurrency": 2}, horizon="1h", replay="1h")
        await scheduler.stop("1s")


@pytest.mark.one_engine("the blocking scheduler has the store of the other")
def test_blocking_verbs_take_a_text() -> None:
    with blocking.Scheduler(domains=[texts]) as scheduler:
        handle = scheduler.submit(work.prepare())
        scheduler.group("g").pause(duration="10m")
        scheduler.run_until_idle("10s")
        assert handle.result("1s") == 1
        handle.wait("1s")
        scheduler.wait(handle.id, "1s")
        assert scheduler.activity("1h").ended == {"completed": 1}
        assert scheduler.error_groups("1h") == []
        scheduler.forecast("1h", samples=1)
        scheduler.simulate({"max_concurrency": 2}, horizon="1h", replay="1h")
        scheduler.stop("1s")


@pytest.mark.one_engine("no store is opened")
async def test_clocks_take_a_text_and_jump_both_ways() -> None:
    clock = ManualClock()
    start = clock.now()
    await clock.advance("10m")
    await clock.sleep("0s")
    await clock.jump("1h")
    await clock.jump("-1h30m")
    assert clock.now() == start - timedelta(minutes=20)
    for wrong in ("10 parsecs", "--1h", None, True, math.nan, math.inf, -math.inf):
        with pytest.raises(ConfigError, match="duration"):
            await clock.jump(wrong)  # type: ignore[arg-type]


@pytest.mark.one_engine("cron tasks in memory")
async def test_stopping_cron_takes_a_text() -> None:
    cron = CronScheduler(":memory:")
    await cron.initialize([("a", "* * * * *", tick, "10s")])
    await cron.stop("1s")


@pytest.mark.one_engine("the parser is what is tested")
def test_flags_take_a_text(tmp_path: Path, here: Here) -> None:
    path = str(tmp_path / "tasks.db")
    with blocking.Scheduler(path, domains=[texts]) as scheduler:
        scheduler.submit(work.prepare())
    for flags in (["rate", path, "texts::work", "1/1h30m"], ["groups", path, "set", "g", "--rate", "1/1h30m"]):
        here(*flags)
    here("groups", path, "pause", "g", "--for", "1h30m")


@pytest.mark.one_engine("no store is opened")
@pytest.mark.parametrize(
    ("report", "says"),
    [
        (lambda ctx: ctx.progress("half"), "fraction must be a number from 0 to 1, not str"),
        (lambda ctx: ctx.progress(None), "fraction must be a number"),
        (lambda ctx: ctx.progress.bytes(None), "total must be an int, in bytes, or a text such as '64MB'"),
        (lambda ctx: ctx.progress.bytes("big"), "total is written as"),
        (lambda ctx: ctx.progress.advance([]), "n must be an int"),
        (lambda ctx: ctx.progress.advance("some"), "n is written as"),
        (lambda ctx: ctx.progress.of("some", 2), "done is written as"),
        (lambda ctx: ctx.progress.of(1, None), "total must be"),
    ],
)
def test_a_wrong_report_of_progress_names_the_argument(report: Callable[[Context], None], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        report(context())


@pytest.mark.one_engine("no store is opened")
def test_progress_counts_texts_as_bytes() -> None:
    ctx: Any = context()
    ctx.progress.of("1MB", "2MB")
    ctx.progress.bytes("1MB")
    ctx.progress.advance("250kB")
    ctx.progress.advance(250_000)
    ctx.progress.advance(250_000.5)
    ctx.progress.advance(float("nan"))
    assert [report.fraction for report in ctx.reported] == [0.5, 0.0, 0.25, 0.5, 0.7500005, 0.7500005]
