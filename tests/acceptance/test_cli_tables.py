"""Tables fit the terminal: cells are measured, names lose their middle, ids and statuses are never lost."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest
from rich.cells import cell_len

from taskmill import Domain, Scheduler
from taskmill.cli import cells
from taskmill.cli.tables import fitted
from tests.acceptance.command_line import Here
from tests.acceptance.terminal import needs_a_terminal, without_colours
from tests.raw_rows import raw

pytestmark = pytest.mark.timeout(60)

LABELS = ["写真のアルバム" * 12, "👨‍👩‍👧 family " * 9, "e\u0301te\u0301 " * 20, "x" * 80, "short"]
LONG_GROUP = "s3://" + "bucket-" * 10 + "eu"
domain = Domain("photos")


@domain.task(name="transfer_" + "everything_" * 6 + "once")
async def transfer(n: int) -> None:
    """Do nothing; no test runs it."""


async def _fill(store: Path) -> None:
    async with Scheduler(store, domains=[domain]) as scheduler:
        for n, label in enumerate(LABELS * 2):
            group = [LONG_GROUP, "disk10", "disk2", None][n % 4]
            key, delay = f"k{n}", 3600 if n % 2 else 0
            await transfer.options(label=label, group=group, key=key, run_after=delay).submit(n)
        await scheduler.cancel(1)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "tasks.db"
    asyncio.run(_fill(path))
    return path


# Cells


@pytest.mark.one_engine("no store is opened")
@pytest.mark.parametrize("text", ["", "plain", *LABELS, "🇩🇪🇫🇷", "❤️ ok", "👍🏽!", "한글", "ｆｕｌｌ"])
def test_width_counts_cells_as_terminals_do(text: str) -> None:
    assert cells.width(text) == cell_len(text)


@pytest.mark.one_engine("no store is opened")
@pytest.mark.parametrize("text", ["photos::transfer", *LABELS])
@pytest.mark.parametrize("most", range(1, 40))
def test_a_shortened_text_fits_and_keeps_both_ends(text: str, most: int) -> None:
    short = cells.shortened(text, most)
    assert cells.width(short) <= most
    if cells.width(text) > most > 8:
        head, _, tail = short.partition("…")
        assert head
        assert text.startswith(head)
        assert tail
        assert text.endswith(tail)


@pytest.mark.one_engine("no store is opened")
def test_a_shortened_name_is_readable() -> None:
    assert cells.shortened("photos::transfer", 12) == "photos::…fer"
    assert cells.shortened("photos::transfer", 16) == "photos::transfer"


@pytest.mark.one_engine("no store is opened")
def test_names_sort_as_people_do() -> None:
    names = ["disk10", "Disk2", "disk1", "", "a1b10", "a1b9", "10", "9"]
    assert sorted(names, key=cells.natural) == ["", "9", "10", "a1b9", "a1b10", "disk1", "Disk2", "disk10"]


@pytest.mark.one_engine("no store is opened")
def test_wrapped_lines_fit_and_lose_no_word() -> None:
    text = "  indented words and 写真のアルバム and a" + "b" * 50
    lines = cells.wrapped(text, 16)
    assert max(map(cells.width, lines)) <= 16
    assert lines[0].startswith("  indented")
    assert "".join("".join(lines).split()) == "".join(text.split())


@pytest.mark.one_engine("no store is opened")
def test_minor_columns_are_dropped_before_names_are_shortened_much() -> None:
    natural = {"id": 6, "status": 9, "type": 60, "priority": 8, "attempts": 8, "about": 60}
    flexible = frozenset({"type", "about"})
    wide = fitted(natural, flexible, ["attempts", "priority"], 120)
    assert list(wide) == list(natural)
    narrow = fitted(natural, flexible, ["attempts", "priority"], 70)
    assert list(narrow) == ["id", "status", "type", "about"]
    assert sum(narrow.values()) + 2 * 3 == 70
    assert (narrow["id"], narrow["status"]) == (6, 9)


# ls


@needs_a_terminal
@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("options", [[], ["--history"]], ids=["active", "ended"])
def test_ls_fits_the_terminal_and_shows_every_id_and_status_whole(
    here: Here, store: Path, columns: int, options: list[str]
) -> None:
    lines = without_colours(here.on_terminal("ls", store, *options, columns=columns)).splitlines()
    assert max(map(cell_len, lines)) <= columns
    found = [line.split()[:2] for line in lines[1:]]
    expected = {False: ["pending", "scheduled"], True: ["cancelled"]}[bool(options)]
    assert len(found) == (1 if options else 9)
    assert {status for _, status in found} == set(expected)
    assert [int(id) for id, _ in found] == ([1] if options else list(range(2, 11)))
    assert all(re.search(r"photos::\S*…\S*once", line) for line in lines[1:])


@needs_a_terminal
def test_a_narrow_terminal_loses_minor_columns_only(here: Here, store: Path) -> None:
    headings: dict[int, list[str]] = {}
    for columns in (80, 160):
        headings[columns] = without_colours(here.on_terminal("ls", store, columns=columns)).splitlines()[0].split()
    assert headings[160] == ["id", "status", "type", "group", "priority", "attempts", "when", "about"]
    assert headings[80] == ["id", "status", "type", "group", "when", "about"]


def test_into_a_pipe_nothing_is_shortened(here: Here, store: Path) -> None:
    listed = here("ls", store)
    assert LONG_GROUP in listed
    assert "x" * 80 in listed


def test_chosen_columns_are_shown_and_unknown_ones_refused(here: Here, store: Path) -> None:
    lines = here("ls", store, "--columns", "id,key,submitted", "--limit", 0).splitlines()
    assert lines[0].split() == ["id", "key", "submitted"]
    assert lines[1].split()[:2] == ["2", "k1"]
    assert "'colour'" in here.refusal("ls", store, "--columns", "id,colour", code=2)


def test_a_page_is_sorted_by_natural_names(here: Here, store: Path) -> None:
    groups = [task["group"] for task in here.answer("ls", store, "--sort", "group")]
    assert groups == ["", "", "disk2", "disk2", "disk10", "disk10", "disk10", LONG_GROUP, LONG_GROUP]


def test_pages_are_turned_in_both_directions(here: Here, store: Path) -> None:
    first = here("ls", store, "--limit", 4)
    assert "--after 5 lists the next" in first
    assert [task["id"] for task in here.answer("ls", store, "--limit", 4, "--after", 5)] == [6, 7, 8, 9]
    assert "--after" not in here("ls", store, "--limit", 4, "--after", 9)
    back = here("ls", store, "--limit", 2, "--before", 6)
    assert [line.split()[0] for line in back.splitlines()[1:3]] == ["4", "5"]
    assert "--before 4 lists the next" in back


def test_ended_tasks_are_paged_from_the_newest(here: Here, store: Path) -> None:
    here("cancel", store, *range(2, 7))
    newest = [task["id"] for task in here.answer("ls", store, "--history")]
    page = here("ls", store, "--history", "--limit", 2)
    assert f"--before {newest[1]} lists the next" in page
    assert [
        task["id"] for task in here.answer("ls", store, "--history", "--limit", 2, "--before", newest[1])
    ] == newest[2:4]
    back = here("ls", store, "--history", "--limit", 2, "--after", newest[4])
    assert [int(line.split()[0]) for line in back.splitlines()[1:3]] == newest[2:4]
    assert f"--after {newest[2]} lists the next" in back


def test_a_page_reads_only_what_it_prints(here: Here, store: Path) -> None:
    """A damaged row on a later page does not matter for the first one."""
    with raw(store) as connection:
        connection.execute("UPDATE taskmill_task SET payload = 'damaged' WHERE id = 10")
    assert [task["id"] for task in here.answer("ls", store, "--limit", 5)] == [2, 3, 4, 5, 6]
    assert here.run("ls", store, "--limit", 0).code != 0


def test_tasks_are_found_by_key_and_by_time(here: Here, store: Path) -> None:
    assert [task["id"] for task in here.answer("ls", store, "--key", "k3")] == [4]
    assert len(here.answer("ls", store, "--since", "1h")) == 9
    assert here.answer("ls", store, "--older", "1h") == []
    assert "--since" in here.refusal("ls", store, "--since", "soon", code=2)


@needs_a_terminal
@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize(
    "words",
    [["status"], ["stats", transfer.name], ["graph", "2"], ["why", "2"], ["show", "2"], ["groups"], ["nodes"]],
    ids=lambda words: words[0],
)
def test_every_table_fits_the_terminal(here: Here, store: Path, columns: int, words: list[str]) -> None:
    command, *rest = words
    lines = without_colours(here.on_terminal(command, store, *rest, columns=columns)).splitlines()
    assert lines
    assert max(map(cell_len, lines)) <= columns


@needs_a_terminal
@pytest.mark.parametrize("command", ["forecast", "simulate"])
def test_looking_ahead_fits_the_terminal_and_shortens_names_only(here: Here, store: Path, command: str) -> None:
    lines = without_colours(here.on_terminal(command, store, columns=80)).splitlines()
    assert max(map(cell_len, lines)) <= 80
    shown = [line for line in lines if "…" in line]
    assert any("s3://" in line for line in shown)
    assert all(re.search(r"\S…\S", line) for line in shown), "a name has lost its middle, and no time its end"
