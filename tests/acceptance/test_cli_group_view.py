"""Groups on a terminal: which columns are dropped on a narrow one, and which groups are shown if not all fit."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from rich.console import Console

from taskmill import GroupSnapshot, RateLimit, Snapshot
from taskmill.cli.views.group_table import group_table
from taskmill.cli.views.groups import bar, groups_on_screen

pytestmark = pytest.mark.one_engine("no store is opened")


def group(name: str, **settings: object) -> GroupSnapshot:
    usual: dict[str, object] = {
        "weight": 1,
        "cap": None,
        "min_slots": 0,
        "rate": None,
        "slots": 0,
        "running": 0,
        "pending": 0,
        "paused": False,
        "paused_until": None,
        "next_priority": None,
    }
    return GroupSnapshot(name=name, **(usual | settings))  # type: ignore[arg-type]


def picture(*groups: GroupSnapshot, slots: int = 16, is_shared: bool = True) -> Snapshot:
    return Snapshot(
        running=[],
        counts={},
        groups={one.name: one for one in groups},
        unhandled={},
        paused=False,
        paused_groups=[],
        paused_domains=[],
        rates=[],
        pressure={},
        schedules=[],
        max_concurrency=slots,
        is_shared=is_shared,
        dispatching=False,
        has_dispatcher=True,
        nodes=[],
    )


def drawn(shown: Snapshot, width: int, height: int | None = None) -> list[str]:
    console = Console(width=width, height=50, color_system=None)
    with console.capture() as captured:
        console.print(groups_on_screen(shown, width, height))
    return captured.get().splitlines()


EVERYTHING = picture(
    group(
        "tenant:a-name-that-is-rather-long",
        weight=2.5,
        cap=12,
        min_slots=2,
        rate=RateLimit.per_minute(100),
        slots=10,
        running=10,
        pending=1_050_000,
        paused=True,
        paused_until=datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=1),
    ),
    group("", slots=6, running=3, pending=3, next_priority=64),
)


@pytest.mark.parametrize("width", [80, 96, 120, 200])
def test_where_it_is_narrow_names_give_way_and_numbers_stay(width: int) -> None:
    lines = drawn(EVERYTHING, width)
    assert all(len(line.rstrip()) <= width for line in lines)
    (row,) = [line for line in lines if line.startswith("ten")]
    for number in ("2.5", " 2 ", " 12 ", "100/min", " 10 ", "1,050,000", "paused until "):
        assert number in row
    assert lines[-1].split() == ["total", "16", "13", "1,050,003"]
    assert ("■■■□□□" in "\n".join(lines)) == (width >= 100), "bars are shown only on wide terminals"


def test_a_bar_tells_what_is_used_free_and_lent() -> None:
    assert bar(group("a", slots=4, running=3), is_shared=True).plain == "■■■□"
    lent = bar(group("a", slots=1, running=3), is_shared=True)
    assert lent.plain == "■■■"
    assert [(span.start, span.end) for span in lent.spans if span.style == "yellow"] == [(1, 3)]
    assert bar(group("a", slots=4, running=3), is_shared=False).plain == "■■■"
    assert bar(group("a", slots=1000, running=1), 0.01, is_shared=True).plain == "■" + "□" * 10


def test_where_not_all_groups_fit_the_busiest_are_shown_by_name_and_all_are_counted() -> None:
    many = picture(*(group(f"g{n:03}", running=n % 7 == 0, pending=n) for n in range(100)))
    found = group_table(many, most=5)
    assert [one.name for one in found.groups] == ["g070", "g077", "g084", "g091", "g098"]
    assert found.hidden == 95
    lines = drawn(many, 80, height=12)
    assert len(lines) <= 12
    assert lines[-1] == "… and 93 more with less to do"
    assert lines[-2].split() == ["total", "0", "15", "4,950"]
    assert len(drawn(many, 80)) > 100, "all groups are shown if the number of lines is not limited"


def test_names_cannot_drive_the_terminal() -> None:
    (row,) = [line for line in drawn(picture(group("\x1b[2J[bold]evil", pending=1)), 120) if "evil" in line]
    assert row.startswith("\\x1b[2J[bold]evil")
