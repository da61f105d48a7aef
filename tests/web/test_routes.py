"""Every route answers as described, on both engines, with the dispatcher in this process and in another."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import quote

from taskmill import Handle, Scheduler, Submission, TaskRecord
from taskmill.testing import ManualClock
from tests.web.client import Api, over
from tests.web.conftest import Served, page_of
from tests.web.service import HOSTILE, give_up, lose, send, sync, watch


async def _running(scheduler: Scheduler, handle: Handle[Any]) -> None:
    """Wait until a task runs and has reported progress, which other processes see with a delay."""
    async with asyncio.timeout(30):
        while True:
            record = await scheduler.get(handle.id)
            if isinstance(record, TaskRecord) and record.state == "running" and record.progress is not None:
                return
            await asyncio.sleep(0.05)


async def test_lists_find_tasks_by_every_filter(served: Served) -> None:
    api, scheduler = served.api, served.scheduler
    done = [await send.options(group="backup").submit(f"photo {n}") for n in range(3)]
    lost = await lose.submit("x")
    for handle in (*done, lost):
        await handle.wait()
    later = await send.options(run_after=3600, label=HOSTILE, tags={"user": "bob"}).submit("later")
    ids = [handle.id for handle in done]

    async def found(**query: Any) -> list[int]:
        return [task["id"] for task in (await api.get("tasks", **query))["tasks"]]

    assert await found() == [later.id, lost.id, *reversed(ids)]
    assert await found(sort="oldest") == [*ids, lost.id, later.id]
    assert await found(state="active") == [later.id]
    assert set(await found(state="ended")) == {*ids, lost.id}
    assert await found(state="scheduled") == [later.id]
    assert set(await found(state="completed")) == set(ids)
    assert await found(state="dead_letter") == [lost.id]
    assert await found(type="sync::lose") == [lost.id]
    assert len(await found(domain="sync")) == 5
    assert await found(group="backup") == [*reversed(ids)]
    assert await found(tag="user=bob") == [later.id]
    assert await found(tag=["user=ann", "team=storage"]) == [*reversed(ids)]
    assert await found(key="photo 1") == [ids[1]]
    assert await found(key="nothing") == []
    assert await found(parent=lost.id) == []
    (task,) = (await api.get("tasks", state="scheduled"))["tasks"]
    assert task["label"] == HOSTILE
    assert (await scheduler.get(later.id)).label == HOSTILE


async def test_pages_follow_each_other_without_gaps(served: Served) -> None:
    api = served.api
    handles = [await send.submit(f"photo {n}") for n in range(7)]
    for handle in handles:
        await handle.wait()
    ids = [handle.id for handle in handles]
    for query, expected in (
        ({}, sorted(ids, reverse=True)),
        ({"sort": "oldest"}, sorted(ids)),
        ({"tag": "user=ann"}, sorted(ids, reverse=True)),
    ):
        assert await _all_pages(api, query) == expected
    by_end = await _all_pages(api, {"state": "ended"})
    assert by_end == [record.id for record in await served.scheduler.history()]
    assert await _all_pages(api, {"state": "completed", "sort": "oldest"}) == [*reversed(by_end)]


async def _all_pages(api: Any, query: dict[str, str]) -> list[int]:
    ids: list[int] = []
    place: dict[str, int] = {}
    while True:
        page = await api.get("tasks", limit=2, **query, **place)
        assert page["is_complete"]
        ids += [task["id"] for task in page["tasks"]]
        if page["next"] is None:
            return ids
        place = {"after" if query.get("sort") == "oldest" else "before": page["next"]}


async def test_suggestions_complete_filters(served: Served) -> None:
    api = served.api
    for path in ("apple", "apricot", "banana"):
        await (await send.options(group="backup").submit(path)).wait()

    async def suggested(field: str, prefix: str = "") -> list[str]:
        found: list[str] = (await api.get("suggest", field=field, prefix=prefix))["values"]
        return found

    assert await suggested("key", "ap") == ["apple", "apricot"]
    assert "sync::send" in await suggested("type", "sync::s")
    assert await suggested("domain", "sy") == ["sync"]
    assert await suggested("group", "back") == ["backup"]
    assert await suggested("state", "dead") == ["dead_letter"]
    assert await suggested("tag") == ["team", "user"]
    assert await suggested("tag", "user=") == ["user=ann"]
    assert (await api.get("suggest", field="key", limit=1))["values"] == ["apple"]


async def test_the_overview_is_made_once_however_many_pages_ask_for_it() -> None:
    async with Scheduler(domains=[sync]) as scheduler, over(page_of(scheduler)) as client:
        answers = await asyncio.gather(*(Api(client).get("overview") for _ in range(20)))
        assert len({answer["at"] for answer in answers}) == 1


async def test_the_overview_of_a_young_history_has_finer_steps(manual_clock: ManualClock) -> None:
    async with Scheduler(domains=[sync], clock=manual_clock) as scheduler:

        async def recent() -> dict[str, Any] | None:
            async with over(page_of(scheduler)) as client:  # a new page remembers no answer
                found: dict[str, Any] | None = (await Api(client).get("overview"))["recent"]
                return found

        assert await recent() is None, "nothing has ended"
        await send.submit("photo")
        await scheduler.run_until_idle()
        for passed, step, steps in ((0, 5, 24), (3, 10, 30), (6, 20, 45), (20, 60, 60)):
            await manual_clock.advance(passed * 60)
            young = await recent()
            assert young is not None
            assert (young["step"], len(young["points"]), young["ended"]) == (step, steps, {"completed": 1})
        await manual_clock.advance(3600)
        await send.submit("photo")
        await scheduler.run_until_idle()
        assert await recent() is None, "a task ended more than an hour ago"


async def test_the_overview_shows_counts_activity_and_errors(served: Served) -> None:
    for n in range(4):
        await (await send.submit(f"photo {n}")).wait()
    await (await lose.submit("x")).wait()
    folder = await watch.submit("photos")
    await _running(served.scheduler, folder)
    overview = await served.api.get("overview")
    assert overview["counts"]["completed"] == 4
    assert [task["id"] for task in overview["running"]] == [folder.id]
    assert overview["running"][0]["progress"]["fraction"] == 0.25
    assert overview["has_dispatcher"] is True
    assert overview["hour"]["ended"] == {"completed": 4, "dead_letter": 1}
    assert sum(point["ended"].get("completed", 0) for point in overview["day"]["points"]) == 4
    assert len(overview["hour"]["points"]) == 60
    assert overview["hour"]["run_p95"] >= overview["hour"]["run_p50"] >= 0
    assert overview["hour"]["sampled"] == 5
    assert overview["errors"]["count"] == 1
    assert [task["type"] for task in overview["errors"]["latest"]] == ["sync::lose"]
    assert overview["errors"]["latest"][0]["errors"] == [], "tracebacks are not in lists"
    assert {group["name"] for group in overview["groups"]} >= {"s3://prod/a", "backup"}


async def test_a_task_is_shown_with_everything_about_it(served: Served) -> None:
    api = served.api
    folder = await watch.submit("photos")
    await _running(served.scheduler, folder)
    after = await send.options(depends_on=[folder.id], ttl=3600).submit("index")
    shown = await api.get(f"tasks/{after.id}")
    assert shown["explanation"]["holds"][0]["reason"] == "dependency"
    assert [link["id"] for link in shown["depends_on"]] == [folder.id]
    assert shown["depends_on"][0]["open"] is True
    assert shown["depends_on"][0]["task"]["type"] == "sync::watch"
    assert [moment["kind"] for moment in shown["timeline"]] == ["submitted", "expires"]
    assert len(shown["priorities"]) == 65, "one step for each level up to the ceiling"
    assert [step["priority"] for step in shown["priorities"]] == list(range(128, 63, -1))
    cancel = next(each for each in shown["equivalents"] if each["action"] == "cancel")
    assert cancel["path"] == f"api/tasks/{after.id}/cancel"
    assert cancel["command"].startswith("taskmill cancel ")
    running = await api.get(f"tasks/{folder.id}")
    assert [link["id"] for link in running["dependents"]] == [after.id]
    assert running["saved"] == {"folder": "photos"}
    assert running["task"]["progress"]["message"] == "watching photos"
    failed = await give_up.submit("x")
    await failed.wait()
    (attempt,) = (await api.get(f"tasks/{failed.id}"))["attempts"]
    assert attempt["kind"] == "gave_up"
    assert "404 x" in attempt["error"]
    assert "give_up" in attempt["traceback"]


async def test_a_superseded_task_and_its_replacement_point_at_each_other(served: Served) -> None:
    first = await send.options(run_after=3600).submit("photo")
    second = await send.options(run_after=3600, on_duplicate="supersede").submit("photo")
    old, new = await served.api.get(f"tasks/{first.id}"), await served.api.get(f"tasks/{second.id}")
    assert (old["superseded_by"], old["supersedes"]) == (second.id, None)
    assert (new["superseded_by"], new["supersedes"]) == (None, first.id)
    assert [task["id"] for task in new["same_key"]] == [second.id, first.id]


async def test_tasks_are_cancelled_retried_and_reprioritized(served: Served) -> None:
    api, scheduler = served.api, served.scheduler
    later = await send.options(run_after=3600).submit("later")
    assert await api.post(f"tasks/{later.id}/priority", {"priority": 7}) == {"ids": [later.id]}
    assert (await scheduler.get(later.id)).priority == 7
    assert await api.post(f"tasks/{later.id}/cancel") == {"ids": [later.id]}
    assert (await later.record()).state == "cancelled"
    assert await api.post(f"tasks/{later.id}/cancel") == {"ids": []}
    problem = await api.refused(409, "POST", f"tasks/{later.id}/priority", json={"priority": 1})
    assert "cancelled" in problem["message"]
    lost = await lose.submit("x")
    await lost.wait()
    assert await api.post(f"tasks/{lost.id}/retry") == {"ids": [lost.id]}
    await lost.wait()
    await api.refused(404, "POST", "tasks/999999/cancel")


async def test_many_tasks_are_changed_at_once_after_a_dry_run(served: Served) -> None:
    api, scheduler = served.api, served.scheduler
    handles = [await send.options(run_after=3600, group="backup").submit(f"p {n}") for n in range(5)]
    other = await send.options(run_after=3600).submit("other")
    ids = sorted(handle.id for handle in handles)
    wanted = {"action": "priority", "filters": {"group": "backup"}, "priority": 9}
    counted = await api.post("tasks/bulk", {**wanted, "dry_run": True})
    assert (counted["count"], counted["is_exact"]) == (5, True)
    assert {(await scheduler.get(id)).priority for id in ids} == {128}
    changed = await api.post("tasks/bulk", wanted)
    assert sorted(changed["ids"]) == ids
    assert {(await scheduler.get(id)).priority for id in ids} == {9}
    cancelled = await api.post("tasks/bulk", {"action": "cancel", "ids": [*ids, 999_999]})
    assert cancelled["ids"] == ids
    assert [each["id"] for each in cancelled["skipped"]] == [999_999]
    assert (await scheduler.get(other.id)).state == "scheduled"
    for wrong in (
        {"action": "cancel"},
        {"action": "cancel", "filters": {}},
        {"action": "cancel", "ids": ids, "filters": {"type": "a::b"}},
        {"action": "priority", "ids": ids},
        {"action": "cancel", "filters": {"state": "completed"}},
        {"action": "cancel", "ids": []},
    ):
        await api.refused(422, "POST", "tasks/bulk", json=wrong)


async def test_groups_are_listed_previewed_changed_and_paused(served: Served) -> None:
    api, scheduler = served.api, served.scheduler
    for name in ("s3://prod/a", "backup"):
        for n in range(4):
            await watch.options(group=name).submit(f"{name} {n}")
    listed = await api.get("groups")
    assert {group["name"]: group["weight"] for group in listed["groups"]} == {"s3://prod/a": 3, "backup": 1}
    preview = await api.post("groups/preview", {"groups": {"backup": {"weight": 100}}})
    shares = {group["name"]: (group["slots"], group["new_slots"]) for group in preview["groups"]}
    assert shares == {"s3://prod/a": (2, 1), "backup": (1, 2)}, "the cap of two still holds"
    assert (await scheduler.snapshot()).groups["backup"].weight == 1
    name = quote("s3://prod/a", safe="")
    await api.post(f"groups/{name}", {"weight": 5, "cap": 3, "min_slots": 1, "rate": {"permits": 10}})
    group = (await scheduler.snapshot()).groups["s3://prod/a"]
    assert (group.weight, group.cap, group.min_slots) == (5, 3, 1)
    assert group.rate is not None
    assert group.rate.permits == 10
    await api.post(f"groups/{name}", {"cap": None, "rate": None})
    assert (await scheduler.snapshot()).groups["s3://prod/a"].cap is None
    assert (await api.post(f"groups/{name}/pause"))["paused"]["groups"] == ["s3://prod/a"]
    assert (await api.post(f"groups/{name}/resume"))["paused"]["groups"] == []
    assert (await api.post("groups//pause", {"duration": 3600}))["paused"]["groups"] == [""]
    assert (await scheduler.snapshot()).groups[""].paused_until is not None
    await api.post("groups//resume")
    await api.refused(422, "POST", "groups/backup", json={})
    await api.refused(422, "POST", "groups/backup", json={"weight": -1})
    await api.refused(422, "POST", "groups/backup", json={"min_slots": -1})


async def test_domains_and_everything_are_paused_and_resumed(served: Served) -> None:
    api = served.api
    assert (await api.post("domains/sync/pause"))["paused"] == {"scheduler": False, "groups": [], "domains": ["sync"]}
    assert (await api.post("domains/sync/resume"))["paused"]["domains"] == []
    assert (await api.post("pause"))["paused"]["scheduler"] is True
    assert (await api.post("resume"))["paused"]["scheduler"] is False
    await api.refused(422, "POST", "domains/nothing/pause")


async def test_schedules_are_listed_and_series_paused(served: Served) -> None:
    api = served.api
    first = await send.options(every=3600, key="hourly", run_after=3600).submit("hourly")
    listed = {each["id"]: each for each in (await api.get("schedules"))["schedules"]}
    cron, series = listed["cron:nightly"], listed[f"series:{first.id}"]
    assert cron["words"] == "at 02:30 every day"
    assert cron["next_run"] is not None
    assert (series["every"], series["key"], series["paused"]) == (3600, "hourly", False)
    assert series["words"] == "every hour"
    paused = await api.post(f"schedules/series:{first.id}/pause")
    assert [each["paused"] for each in paused["schedules"] if each["kind"] == "series"] == [True]
    resumed = await api.post(f"schedules/series:{first.id}/resume")
    assert [each["paused"] for each in resumed["schedules"] if each["kind"] == "series"] == [False]
    ran = await api.post("schedules/cron:nightly/run")
    assert (await api.get(f"tasks/{ran['ids'][0]}"))["task"]["tags"]["cron"] == "nightly"
    await api.refused(409, "POST", f"schedules/series:{first.id}/run")
    await api.refused(404, "POST", "schedules/cron:unknown/run")
    await api.refused(409, "POST", "schedules/cron:nightly/pause")
    await api.refused(404, "POST", "schedules/nothing/pause")


async def test_errors_are_grouped_and_their_dead_letters_retried(served: Served) -> None:
    api = served.api
    lost = [await lose.submit(f"x {n}") for n in range(3)]
    for handle in lost:
        await handle.wait()
    (group,) = (await api.get("errors"))["groups"]
    assert (group["type"], group["count"]) == ("sync::lose", 3)
    assert "service.py" in group["location"]
    body = {"type": group["type"], "exception": group["exception"], "location": group["location"]}
    retried = await api.post("errors/retry", body)
    assert retried["ids"] == [handle.id for handle in lost]
    for handle in lost:
        await handle.wait()
    assert (await api.get("errors", hours=1))["groups"][0]["count"] == 6


async def test_machine_nodes_and_system_are_shown(served: Served) -> None:
    api = served.api
    await served.scheduler.group("backup").pause()
    held = await send.options(group="backup").submit("held")
    machine = await api.get("machine")
    assert machine["budgets"] == {"disk_read": 0, "disk_write": 0, "net_rx": 0, "net_tx": 0}
    (node,) = (await api.get("nodes"))["nodes"]
    assert node["is_alive"] is True
    system = await api.get("system")
    assert system["settings"]["max_concurrency"] == 3
    assert system["settings"]["groups"]["backup"]["cap"] == 2
    assert system["settings"]["aging"]["step"] == 1
    assert system["is_healthy"] is True
    assert {"dead letters"} <= {finding["subject"] for finding in system["findings"]}
    assert "password" not in str(system["store"])
    session = await served.api.client.get("/api/session", headers={"authorization": f"Bearer {served.page.token}"})
    assert session.json()["access"] == "full"
    await held.cancel()


async def test_an_unknown_task_is_not_found(served: Served) -> None:
    for path in ("tasks/999999", "tasks/12345678901234567890", "tasks/x", "tasks/-1", "nothing"):
        problem = await served.api.refused(404, "GET", path)
        if path in ("tasks/x", "tasks/-1"):
            given = path.removeprefix("tasks/")
            assert problem["message"] == f"an id is a whole number from 1 to 9223372036854775807, got {given!r}"
    assert (await served.scheduler.submit(Submission("sync::send", {"path": "x"}))).id
