"""Looking at tasks and cancelling them from the command line."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from taskmill import Context, Domain, GiveUp, Scheduler
from tests.acceptance.command_line import Here

pytestmark = pytest.mark.timeout(40)


# Looking


def test_status_counts_tasks_by_status_ending_and_group(here: Here, template: Path) -> None:
    text = here("status", template)
    assert "active      4: 3 pending, 1 scheduled" in text
    assert "ended       3: 1 completed, 1 failed, 1 dead letter" in text
    assert "nothing runs the tasks" in text
    assert "s3://prod" in text
    assert "(no group)" in text

    document = here.answer("status", template)
    assert document["dispatching"] is False
    assert document["active"]["pending"] == 3
    assert document["active"]["running"] == 0
    assert document["ended"]["dead_letter"] == 1
    assert document["groups"]["s3://prod"]["pending"] == 2
    assert document["groups"][""]["pending"] == 1


def test_ls_lists_active_tasks_with_readable_times_and_priorities(here: Here, template: Path) -> None:
    lines = here("ls", template).splitlines()
    assert lines[0].split() == ["id", "status", "type", "group", "priority", "attempts", "when", "about"]
    assert len(lines) == 5
    assert " high " in lines[1]
    assert " 100 " in lines[2]
    assert "in 59 min" in lines[3] or "in 1 h" in lines[3]
    assert "ago" in lines[1] or "now" in lines[1]
    assert [task["id"] for task in here.answer("ls", template)] == [4, 5, 6, 7]


def test_stored_text_cannot_drive_the_terminal(here: Here, template: Path) -> None:
    for command in (("ls", template), ("show", template, 7)):
        text = here(*command)
        assert "\x1b" not in text
        assert "\\x1b[2J[bold]evil[/bold]" in text


@pytest.mark.parametrize(
    ("filters", "ids"),
    [
        (["--status", "scheduled"], [6]),
        (["--type", "sync::send"], [4, 5, 6, 7]),
        (["--type", "sync::lose"], []),
        (["--domain", "other"], []),
        (["--group", ""], [5]),
        (["--tag", "user=bob"], [4]),
        (["--limit", "2"], [4, 5]),
        (["--limit", "0"], [4, 5, 6, 7]),
        (["--history"], [3, 2, 1]),
        (["--status", "failed"], [2]),
        (["--history", "--domain", "sync", "--tag", "user=ann"], [1]),
    ],
)
def test_ls_filters(here: Here, template: Path, filters: list[str], ids: list[int]) -> None:
    assert [task["id"] for task in here.answer("ls", template, *filters)] == ids


def test_ls_says_that_there_is_more_or_nothing(here: Here, template: Path) -> None:
    assert "more than 2" in here("ls", template, "--limit", 2)
    assert "no active task matches" in here("ls", template, "--domain", "other")
    history = here("ls", template, "--history")
    assert "ValueError: first line" in history
    assert "second line" not in history


def test_ls_refuses_filters_that_make_no_sense(here: Here, template: Path) -> None:
    assert "NAME=VALUE" in here.refusal("ls", template, "--tag", "user", code=2)
    assert "not an ending" in here.refusal("ls", template, "--history", "--status", "pending", code=2)
    assert "--limit" in here.refusal("ls", template, "--limit", "-1", code=2)
    here("ls", template, "--status", "sleeping", code=2)


def test_show_tells_everything_about_a_task(here: Here, template: Path) -> None:
    text = here("show", template, 1)
    for words in ("completed", "the first", "s3://prod", "normal", "user=ann", "a.jpg", "100%, 1.0 kB of 1.0 kB"):
        assert words in text
    assert '{"size": 5}' in text

    broken = here("show", template, 3)
    assert "ValueError: first line\n" in broken
    assert "second line" in broken
    assert "retries" in broken

    document = here.answer("show", template, 1)
    assert document["payload"] == {"path": "a.jpg"}
    assert document["result"] == {"size": 5}
    assert document["ending"] == "completed"
    assert document["progress"]["done_bytes"] == 1000
    assert document["ended_at"].endswith("+00:00")
    assert here.answer("show", template, 6)["status"] == "scheduled"


async def test_show_names_the_neighbours_of_a_task_what_it_saved_and_why_it_waits(tmp_path: Path, here: Here) -> None:
    domain = Domain("album")

    @domain.task
    async def photo(ctx: Context, n: int) -> None:
        await ctx.save(done=n)

    @domain.task(fail_fast=False)
    async def whole(ctx: Context) -> None:
        await ctx.spawn_many(photo.prepare(n) for n in range(2))

    file = tmp_path / "tasks.db"
    async with Scheduler(file, domains=[domain]) as scheduler:
        album = await whole.submit()
        await scheduler.run_until_idle()
        keyed = photo.options(key="k", on_duplicate="supersede", depends_on=[album.id], run_after=3600)
        old, new = await keyed.submit(7), await keyed.submit(8)
        last = await photo.options(depends_on=new).submit(9)

    async def shown(id: int) -> str:
        return re.sub(" {2,}", ": ", await asyncio.to_thread(here, "show", file, id))

    assert "children: 2 completed" in await shown(album.id)
    assert 'saved: {"done": 0}' in await shown(2)
    assert "parent: 1" in await shown(2)
    waiting = await shown(new.id)
    for words in ("it is due in", "depends on: task 1 (ended)", f"replaced: task {old.id}"):
        assert words in waiting
    assert f"needed by: task {last.id}" in waiting
    assert f"await scheduler.get({new.id}); await scheduler.details({new.id})" in waiting
    assert f"replaced by: task {new.id}" in await shown(old.id)
    assert f"it depends on 1 task that has not ended: {new.id}" in await shown(last.id)
    document = await asyncio.to_thread(here.answer, "show", file, new.id)
    assert document["details"]["replaced"] == [old.id]
    assert document["explanation"]["holds"][0]["reason"] == "not_due"


def test_an_unused_id_is_refused(here: Here, template: Path) -> None:
    assert here.refusal("show", template, 99, code=1) == "no task has the id 99"


async def test_graph_shows_a_family_and_what_waits_for_what(tmp_path: Path, here: Here) -> None:
    domain = Domain("album")

    @domain.task
    async def photo(n: int) -> None:
        if n == 2:
            raise GiveUp("broken")

    @domain.task(fail_fast=False)
    async def whole(ctx: Context) -> None:
        await ctx.spawn_many(photo.prepare(n) for n in range(3))

    file = tmp_path / "tasks.db"
    async with Scheduler(file, domains=[domain]) as scheduler:
        album = await whole.submit()
        await scheduler.run_until_idle()
        later = await photo.options(run_after=3600, depends_on=album).submit(7)
        await photo.options(depends_on=later, label="the last").submit(8)
    text = await asyncio.to_thread(here, "graph", file, later.id)
    assert text.splitlines() == [
        "task  state      type          progress  after",
        "1     completed  album::whole",
        "├─ 2  completed  album::photo",
        "├─ 3  completed  album::photo",
        "└─ 4  failed     album::photo",
        "5 ◂   scheduled  album::photo            1 ✓",
        "6     blocked    the last                5",
    ]
    shortened = await asyncio.to_thread(here, "graph", file, 1, "--limit", 2)
    assert shortened.splitlines()[-1] == "… and 4 more; --limit 0 shows all"
    document = await asyncio.to_thread(here.answer, "graph", file, 1)
    assert document["tasks"]["4"]["parent_id"] == 1
    assert document["dependencies"] == [[5, 1, False], [6, 5, True]]
    assert "no task has the id 99" in await asyncio.to_thread(here.refusal, "graph", file, 99, code=1)
    assert "--limit" in await asyncio.to_thread(here.refusal, "graph", file, 1, "--limit", -1, code=2)


# Control


def test_cancel_ends_waiting_tasks_and_refuses_the_rest(here: Here, file: Path) -> None:
    assert here("cancel", file, 4, 6).splitlines() == ["task 4 is cancelled", "task 6 is cancelled"]

    mixed = here.run("cancel", file, 5, 1, 99)
    assert mixed.code == 1
    assert mixed.out.splitlines() == ["task 5 is cancelled"]
    assert "task 1 had already ended: completed" in mixed.wrong
    assert "no task has the id 99" in mixed.wrong

    assert here.answer("cancel", file, 7) == [{"id": 7, "outcome": "cancelled", "ending": None}]
    again = here.answer("cancel", file, 7, 99, code=1)
    assert again[0] == {"id": 7, "outcome": "ended", "ending": "cancelled"}
    assert again[1]["outcome"] == "not_found"
    assert here.answer("status", file)["ended"]["cancelled"] == 4
