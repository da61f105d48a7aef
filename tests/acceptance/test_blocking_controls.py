"""Programs without an event loop have the same verbs, with the same arguments, and they do the same."""

from __future__ import annotations

import inspect
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from taskmill import Aging, ConfigError, Domain, Group, RateLimit, SchedulerSettings, blocking
from taskmill.blocking import DomainControl, GroupControl
from taskmill.scheduler import Scheduler
from taskmill.verbs.tuning import DomainControl as AsyncDomainControl
from taskmill.verbs.tuning import GroupControl as AsyncGroupControl

CONTROLS = [
    "cancel_where",
    "domain",
    "explain",
    "group",
    "max_wait",
    "pause",
    "pause_recurring",
    "reset_group_weights",
    "resume",
    "resume_recurring",
    "set_max_concurrency",
    "set_priority",
    "set_rate_limit",
    "snapshot",
]


def _parameters(function: object) -> list[tuple[str, object, object]]:
    signature = inspect.signature(function)  # type: ignore[arg-type]
    return [(each.name, each.kind, each.default) for each in signature.parameters.values()]


@pytest.mark.parametrize("verb", CONTROLS)
@pytest.mark.one_engine("no store is opened")
def test_every_control_is_there_with_the_same_arguments(verb: str) -> None:
    ours, theirs = getattr(blocking.Scheduler, verb), getattr(Scheduler, verb)
    assert _parameters(ours) == _parameters(theirs)
    assert not inspect.iscoroutinefunction(ours)


@pytest.mark.parametrize(("ours", "theirs"), [(GroupControl, AsyncGroupControl), (DomainControl, AsyncDomainControl)])
@pytest.mark.one_engine("no store is opened")
def test_groups_and_domains_have_the_same_verbs(ours: type, theirs: type) -> None:
    verbs = [name for name, _ in inspect.getmembers(theirs, inspect.isfunction) if not name.startswith("_")]
    assert verbs
    for verb in verbs:
        assert _parameters(getattr(ours, verb)) == _parameters(getattr(theirs, verb))


def test_they_do_what_they_say(tmp_path: Path) -> None:
    domain = Domain("d")

    @domain.task
    def work(n: int) -> int:
        return n

    settings: SchedulerSettings = {
        "domains": [domain],
        "groups": {"g": Group(weight=3)},
        "aging": Aging(grace=60, interval=60),
    }
    with blocking.Scheduler(tmp_path / "tasks.db", **settings) as scheduler:
        held = scheduler.submit(work.options(group="g", ttl=3600).prepare(1))
        free = scheduler.submit(work.prepare(2))
        scheduler.group("g").pause()
        scheduler.run_until_idle(timeout=20)
        assert free.result(timeout=20) == 2
        assert held.record().status == "paused"  # type: ignore[union-attr]
        assert [hold.reason for hold in held.explain().holds] == ["group_paused"]
        assert [hold.reason for hold in scheduler.explain(held.id).holds] == ["group_paused"]
        scheduler.domain("d").pause()
        scheduler.pause()
        snapshot = scheduler.snapshot()
        assert (snapshot.paused, snapshot.paused_groups, snapshot.paused_domains) == (True, ["g"], ["d"])
        scheduler.resume()
        scheduler.domain("d").resume()
        scheduler.domain("d").set_max_concurrency(2)
        scheduler.group("g").set(weight=5, cap=3, rate=RateLimit.per_second(10))
        settings_now = scheduler.snapshot().groups["g"]
        assert (settings_now.weight, settings_now.cap) == (5, 3)
        scheduler.reset_group_weights()
        assert scheduler.snapshot().groups["g"].weight == 1
        scheduler.set_priority(held.id, 7)
        assert held.record().priority == 7
        scheduler.set_rate_limit("d::work", RateLimit.per_minute(60))
        scheduler.set_rate_limit("d::work", None)
        scheduler.set_max_concurrency(3)
        assert scheduler.snapshot().max_concurrency == 3
        assert scheduler.max_wait(128) == timedelta(seconds=60 + 64 * 60)
        scheduler.group("g").pause(until=datetime(2100, 1, 1, tzinfo=UTC))
        scheduler.group("g").pause(duration=3600)
        scheduler.group("g").resume()
        scheduler.run_until_idle(timeout=20)
        assert held.result(timeout=20) == 1
        scheduler.group(None).pause()
        waiting = scheduler.submit(work.prepare(3))
        assert scheduler.cancel_where(status="paused") == [waiting.id]


def test_they_refuse_what_the_others_refuse(tmp_path: Path) -> None:
    with blocking.Scheduler(tmp_path / "tasks.db") as scheduler:
        with pytest.raises(ConfigError, match="weight"):
            scheduler.group("g").set(weight=-1)
        with pytest.raises(ConfigError, match="nothing"):
            scheduler.domain("nothing").pause()
        with pytest.raises(ConfigError, match="duration"):
            scheduler.group("g").pause(duration=-1)
        with pytest.raises(ConfigError, match="max_concurrency"):
            scheduler.set_max_concurrency(0)
