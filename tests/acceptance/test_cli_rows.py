"""The rows of live views: which tasks have one, and how they fit the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest
from rich.console import Console

from taskmill import Status, TaskProgress, TaskRecord
from taskmill.cli.views.polling import Children, TaskState
from taskmill.cli.views.run import Rows, _head
from taskmill.cli.views.running import running_table
from taskmill.cli.views.watch import task_frame


def record(id: int, fraction: float | None = None, **settings: object) -> TaskRecord:
    usual: dict[str, object] = {
        "type": "work::send",
        "domain": "work",
        "key": None,
        "label": f"file {id}",
        "group": "",
        "priority": 128,
        "effective_priority": 128,
        "payload": {},
        "tags": {},
        "attempt": 1,
        "retries": 0,
        "created_at": datetime.now(UTC),
        "run_at": None,
        "expires_at": None,
        "started_at": datetime.now(UTC),
        "parent_id": None,
        "io": None,
        "progress": None if fraction is None else TaskProgress(fraction, rate=1e6),
        "last_error": None,
        "status": Status.RUNNING,
    }
    return TaskRecord(id=id, **(usual | settings))  # type: ignore[arg-type]


def lines(rows: Rows, ids: Sequence[int], most: int = 4) -> tuple[list[int], list[int]]:
    shown, rest = rows.assign([record(id) for id in ids], most)
    return [one.id for one in shown], [one.id for one in rest]


@pytest.mark.one_engine("no store is opened")
def test_a_new_task_takes_the_row_of_one_that_has_ended() -> None:
    rows = Rows()
    assert lines(rows, [1, 2, 3]) == ([1, 2, 3], [])
    assert lines(rows, [1, 3, 4, 5]) == ([1, 4, 3, 5], [])


@pytest.mark.one_engine("no store is opened")
def test_an_ended_task_leaves_no_empty_row() -> None:
    rows = Rows()
    lines(rows, [1, 2, 3])
    assert lines(rows, [1, 3]) == ([1, 3], [])
    assert lines(rows, [1, 3, 4]) == ([1, 3, 4], [])
    assert lines(rows, []) == ([], [])
    assert lines(Rows(), []) == ([], [])


@pytest.mark.one_engine("no store is opened")
def test_there_are_as_many_rows_as_fit_and_the_rest_is_counted() -> None:
    rows = Rows()
    assert lines(rows, range(1, 8)) == ([1, 2, 3, 4], [5, 6, 7])
    assert lines(rows, [1, 3, 5, 6, 7]) == ([1, 5, 3, 6], [7])
    assert lines(rows, [1, 5, 3, 6, 7], most=2) == ([1, 5], [3, 6, 7]), "the terminal has become smaller"
    assert lines(rows, [1, 5, 3, 6, 7], most=9)[0] == [1, 5, 3, 6, 7]


def table(records: Sequence[TaskRecord], width: int, *, with_groups: bool = True) -> list[str]:
    console = Console(width=width, color_system=None)
    with console.capture() as captured:
        console.print(running_table(records, width, with_groups=with_groups))
    return captured.get().splitlines()


SENDING = TaskProgress(
    0.62, "sending", done_bytes=186_000_000, total_bytes=300_000_000, rate=50.1e6, eta=timedelta(minutes=59, seconds=31)
)
LONG: dict[str, object] = {
    "type": "work::a_handler_with_a_long_name",
    "group": "a-tenant-with-a-long-name",
    "label": "x" * 60,
}


@pytest.mark.parametrize("width", [80, 100, 140])
@pytest.mark.one_engine("no store is opened")
def test_bar_bytes_rate_and_time_left_fit_80_columns(width: int) -> None:
    shown = table([record(11, None, progress=SENDING, **LONG), record(7, label="short")], width)
    assert [len(line.rstrip()) <= width for line in shown] == [True, True]
    assert shown[0].rstrip().endswith(" 62% of 300 MB  50.1 MB/s 59 min left")
    assert shown[0].startswith("11 a_handle")
    assert "━━━" in shown[0]
    assert ("a-ten" in shown[0]) is (width > 80), "the group is the first to go"


@pytest.mark.parametrize("width", [20, 40, 60])
@pytest.mark.one_engine("no store is opened")
def test_a_narrow_terminal_has_fewer_columns(width: int) -> None:
    (shown,) = table([record(11, None, progress=SENDING, **LONG)], width)
    assert len(shown.rstrip()) <= width
    assert "62%" in shown
    assert "300 MB" not in shown


@pytest.mark.one_engine("no store is opened")
def test_names_take_the_room_that_is_there() -> None:
    long = {**LONG, "group": "", "label": "a file with quite a long name.tar.gz"}
    (shown,) = table([record(11, None, **long)], 80, with_groups=False)
    assert shown.startswith("11 a_handler_with_a_long_name a file with quite a long name.tar.gz")
    (shown,) = table([record(11, progress=TaskProgress(0.5, "halfway"))], 80)
    assert shown.rstrip().endswith(" 50% halfway")
    (shown,) = table([record(11, progress=TaskProgress(done_bytes=5_000_000, rate=1e6))], 80)
    assert shown.rstrip().endswith("5.0 MB      1.0 MB/s")


@pytest.mark.parametrize(("width", "height"), [(80, 2), (100, 1)])
@pytest.mark.one_engine("no store is opened")
def test_the_counts_are_whole_however_narrow_the_terminal_is(width: int, height: int) -> None:
    head = list(
        _head("app.tasks:scheduler", "15 of 15 slots at work", "12,324 pending", "ended here: 19 completed", width)
    )
    assert len(head) == height
    assert all(line.cell_len <= width for line in head)
    words = " ".join(line.plain for line in head)
    for word in ("app.tasks:scheduler", "15 of 15 slots at work", "12,324 pending", "ended here: 19 completed"):
        assert word in words


# One task


def drawn(state: TaskState, width: int, height: int) -> list[str]:
    console = Console(width=width, height=height, color_system=None)
    with console.capture() as captured:
        console.print(task_frame(state, console))
    return captured.get().splitlines()


@pytest.mark.parametrize(("width", "height"), [(60, 12), (80, 20), (120, 40)])
@pytest.mark.one_engine("no store is opened")
def test_many_children_are_summed_where_there_is_no_room_for_lines(width: int, height: int) -> None:
    active = [record(id, 0.5) for id in range(2, 42)]
    parent = record(1, 0.25, status=Status.WAITING)
    children = Children({"pending": 1000, "running": 400, "completed": 3}, active)
    shown = drawn(TaskState(parent, None, children), width, height)
    assert len(shown) <= height - 2
    assert all(len(line.rstrip()) <= width for line in shown)
    assert "25%" in shown[1]
    assert "children: 1,000 pending, 400 running, 3 completed" in shown[3]
    lines = [line for line in shown if "━" in line][1:]
    assert 1 <= len(lines) <= 10
    hidden = 40 - len(lines)
    assert shown[-1].strip() == f"… and {400 - len(lines):,} more under way, 50% together, {hidden:.1f} MB/s"


@pytest.mark.one_engine("no store is opened")
def test_stored_text_cannot_drive_the_terminal_while_it_is_watched() -> None:
    evil = "\x1b[2J[bold]evil"
    progress = TaskProgress(0.5, evil)
    shown = "\n".join(drawn(TaskState(record(1, label=evil, progress=progress), None, None), 100, 20))
    assert "\x1b" not in shown
    assert shown.count("\\x1b[2J[bold]evil") == 2
