"""Changes of settings are compared before they are made, within bounds, and suggestions of ``explain`` are applied."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from taskmill.simulation import runs
from taskmill.web.pages import changes
from tests.web.client import BEARER, over
from tests.web.conftest import Served, page_of
from tests.web.service import give_up, lose, scheduler_of, send, watch

CAP = {"groups": {"backup": {"cap": 1}}}


async def _fill(served: Served) -> None:
    """Let three tasks occupy all slots, and six wait in the group ``backup``, of which two have a deadline."""
    await (await send.submit("known")).wait()
    for n in range(3):
        await watch.options(group="s3://prod/a").submit(f"folder {n}")
    async with asyncio.timeout(30):
        while len((await served.scheduler.snapshot()).running) < 3:
            await asyncio.sleep(0.05)
    for n in range(6):
        await send.options(group="backup", ttl=3600 if n < 2 else None).submit(f"photo {n}")


async def _endless(monkeypatch: pytest.MonkeyPatch) -> None:
    """Submit work that takes minutes to simulate: a frequent series, and a task that starts only after the horizon."""
    monkeypatch.setattr(runs, "MOST_OCCURRENCES", 10**9)
    await send.options(group="backup", run_after="8d").submit("later")
    await send.options(every=0.1, key="often", run_after=3600).submit("often")


async def test_a_simulation_compares_waits_now_and_then_and_changes_nothing(served: Served, place: str) -> None:
    await _fill(served)
    now = (await served.scheduler.snapshot()).groups["backup"]
    found = await served.api.post("simulate", CAP)
    assert found["is_exact"] is place.endswith("here")
    (wait,) = [each for each in found["groups"] if each["name"] == "backup"]
    assert found["groups"][0] == wait, "the changed groups come first"
    assert 0 < wait["wait_p50"] <= wait["wait_p90"]
    assert found["total"] == len(found["groups"]) == 1, "only the group of the tasks that wait has waits"
    for run in (found["before"], found["after"]):
        assert (run["started"], run["unstarted"], run["deadlines_missed"]) == (6, 0, 0)
        assert run["slots_used"] > 0
        assert run["ends_at"] is not None
    assert any("sync::watch" in note for note in found["notes"])
    assert (await served.scheduler.snapshot()).groups["backup"] == now


async def test_a_paused_group_has_waits_only_after_the_change(alone: Served) -> None:
    await alone.scheduler.group("backup").pause()
    await send.options(group="backup").submit("held")
    found = await alone.api.post("simulate", {"resume": {"groups": ["backup"]}})
    (wait,) = found["groups"]
    assert (wait["wait_p50"], wait["wait_p90"]) == (None, None)
    assert wait["new_wait_p50"] is not None
    assert (found["before"]["unstarted"], found["after"]["unstarted"]) == (1, 0)
    assert found["before"]["ends_at"] is None


async def test_the_group_that_changes_comes_first_and_then_the_largest_differences(alone: Served) -> None:
    for group in ("a", "b", "c"):
        await alone.scheduler.submit_many([send.options(group=group, key=f"{group}{n}").prepare("x") for n in range(4)])
    # With caps, b and c change by themselves; a gains what they lose.
    found = await alone.api.post("simulate", {"groups": {"c": {"cap": 1}, "b": {"weight": 2}}})
    assert {each["name"] for each in found["groups"][:2]} == {"b", "c"}
    assert found["groups"][2]["name"] == "a"


async def test_an_empty_queue_is_compared_too(alone: Served) -> None:
    found = await alone.api.post("simulate", CAP)
    assert found["groups"] == []
    assert found["before"]["started"] == found["before"]["deadlines_missed"] == 0


async def test_wrong_changes_are_refused_by_name(alone: Served) -> None:
    for path in ("simulate", "apply"):
        for body, word in (
            ({}, "max_concurrency, groups, rates, resume"),
            ({"groups": {"a": {"weight": -1}}}, "weight"),
            ({"groups": {"a": {"min_slots": -1}}}, "min_slots"),
            ({"max_concurrency": 0}, "max_concurrency"),
            ({"slots": 3}, "slots"),
            ({"resume": ["a"]}, "resume"),
        ):
            problem = await alone.api.refused(422, "POST", path, json=body)
            assert word in problem["message"], body
    assert (await alone.scheduler.snapshot()).groups.keys() <= {"s3://prod/a", "backup"}, "nothing was stored"


# Bounds


async def test_too_many_tasks_are_refused_with_the_command_that_can_do_it(
    alone: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "MOST_SIMULATED", 4)
    await alone.scheduler.submit_many([send.prepare(f"photo {n}") for n in range(4)])
    await alone.api.post("simulate", CAP)
    await send.submit("one more")
    problem = await alone.api.refused(409, "POST", "simulate", json=CAP)
    assert problem["error"] == "too_many"
    assert "5 tasks are active" in problem["message"]
    assert "taskmill simulate" in problem["message"]


async def test_a_simulation_that_takes_too_long_is_stopped_and_blocks_nothing(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    await _endless(monkeypatch)
    monkeypatch.setattr(changes, "SIMULATION_SECONDS", 1.5)
    asked = asyncio.create_task(served.api.refused(503, "POST", "simulate", json=CAP))
    await served.api.get("groups")
    assert not asked.done(), "the event loop is free during a simulation"
    problem = await asked
    assert problem["error"] == "timeout"
    assert "taskmill simulate" in problem["message"]
    monkeypatch.undo()
    await served.scheduler.cancel_where(domain="sync")
    assert (await served.api.post("simulate", CAP))["before"]["unstarted"] == 0


async def test_a_page_runs_one_simulation_at_a_time(alone: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "SIMULATION_SECONDS", 0.2)
    async with alone.page._backend.simulating:
        await alone.api.refused(503, "POST", "simulate", json=CAP)
    await _endless(monkeypatch)
    monkeypatch.setattr(changes, "SIMULATION_SECONDS", 1.0)
    slow = asyncio.create_task(alone.api.refused(503, "POST", "simulate", json=CAP))
    await alone.api.get("groups")
    assert alone.page._backend.simulating.locked()
    await slow
    assert not alone.page._backend.simulating.locked()


# Access


async def test_a_reader_may_simulate_but_not_apply(tmp_path: Path) -> None:
    async with scheduler_of(str(tmp_path / "tasks.db")) as scheduler:
        async with over(page_of(scheduler, read_only=True)) as client:
            compared = await client.post("/api/simulate", json=CAP, headers=BEARER)
            assert compared.status_code == 200
            refused = await client.post("/api/apply", json=CAP, headers=BEARER)
            assert refused.status_code == 403
            assert refused.json()["error"] == "read_only"
            foreign = await client.post("/api/simulate", json=CAP, headers={"origin": "http://evil.example"})
            assert foreign.status_code in (401, 403)
        assert (await scheduler.snapshot()).groups["backup"].cap == 2


async def test_applied_changes_are_logged(alone: Served, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "taskmill.audit"):
        await alone.api.post("apply", CAP)
        await alone.api.post("simulate", CAP)
        await alone.api.post("groups/backup", {"cap": None})
    logged, removed = [record.getMessage() for record in caplog.records if record.name == "taskmill.audit"]
    assert logged == 'bearer at 127.0.0.1: apply {} {"groups":{"backup":{"cap":1}}}: done'
    assert removed.endswith('{"cap":null}: done'), "a removal is logged too"


# Remedies


async def _remedies(served: Served, id: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await served.api.get(f"tasks/{id}"))["explanation"]["remedies"]
    return found


async def test_a_remedy_of_a_waiting_task_is_applied_as_it_was_returned(served: Served) -> None:
    await served.scheduler.group("backup").pause()
    held = await send.options(group="backup").submit("held")
    (remedy,) = await _remedies(served, held.id)
    assert "resume" in remedy["text"]
    assert await served.api.post("apply", remedy["changes"]) == {"names": ["resume"]}
    assert await held.result() == 4


async def test_slots_are_changed_only_by_a_page_of_the_program_that_dispatches(served: Served, place: str) -> None:
    await _fill(served)
    waits = await send.submit("waits")
    (remedy,) = await _remedies(served, waits.id)
    assert remedy["changes"].keys() == {"max_concurrency"}
    is_here = place.endswith("here")
    assert (await served.api.get("overview"))["is_dispatching"] is is_here
    if is_here:
        await served.api.post("apply", remedy["changes"])
        assert await waits.result() == 5
    else:
        problem = await served.api.refused(409, "POST", "apply", json=remedy["changes"])
        assert "max_concurrency" in problem["message"]


# Errors


async def test_the_dead_letters_of_an_error_are_counted_before_they_are_retried(served: Served) -> None:
    lost = [await lose.submit(f"x {n}") for n in range(3)]
    others = [await give_up.submit("y")]
    for handle in (*lost, *others):
        await handle.wait()
    await served.scheduler.retry_dead(lost[0].id)
    await lost[0].wait()
    group = next(each for each in (await served.api.get("errors"))["groups"] if each["type"] == "sync::lose")
    assert group["count"] == 4, "attempts, not tasks"
    body = {name: group[name] for name in ("type", "exception", "location")}
    assert await served.api.post("errors/retry", {**body, "dry_run": True}) == {"count": 3, "ids": []}
    assert await served.scheduler.count(status="dead_letter", type="sync::lose") == 3
    retried = await served.api.post("errors/retry", body)
    assert (retried["count"], retried["ids"]) == (3, [handle.id for handle in lost])
