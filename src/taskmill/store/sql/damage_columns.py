"""What every column of every table holds, to tell damaged values, and what replaces damage in a task."""

from typing import Annotated, Any, Literal, NamedTuple

import msgspec

from taskmill.model.attempt import StopReason
from taskmill.model.durations import Instant
from taskmill.model.status import Ending, ErrorKind, OnDependencyFailure, Status

_Whole = int | bool
NOW = object()


class Column(NamedTuple):
    name: str
    holds: Any
    harmless: Any
    """The value that replaces damage, so that the task can be ended."""


_KEPT = {
    *("type", "key", "label", "group_name", "priority", "payload", "tags", "overrides", "attempt", "retries"),
    *("created_at", "due_at", "expires_at", "started_at", "parent_id", "series_id"),
    *("saved", "replaced", "progress", "io", "actual_io", "last_error"),
}
"""The columns of a task that history has as well."""
TASK = (
    Column("type", str, ""),
    Column("key", str | None, None),
    Column("label", str | None, None),
    Column("group_name", str, ""),
    Column("priority", int, 128),
    Column("urgency", int, 128),
    Column("status", Status, Status.PENDING),
    # Assume a stop request: a task that was asked to stop has freed its key, and another may hold it.
    Column("stop", Literal["cancel", "supersede", "fail"] | None, StopReason.CANCEL),
    Column("payload", str, "null"),
    Column("tags", str | None, None),
    Column("overrides", str | None, None),
    Column("attempt", int, 0),
    Column("retries", int, 0),
    Column("crashes", int, 0),
    Column("interrupted", _Whole, False),
    Column("created_at", Instant, NOW),
    Column("queued_at", Instant, NOW),
    Column("renewed_at", Instant | None, None),
    Column("place_id", int | None, None),
    Column("due_at", Instant | None, None),
    Column("due_is_relative", _Whole, False),
    Column("expires_at", Instant | None, None),
    Column("started_at", Instant | None, None),
    Column("ttl_ms", int | None, None),
    Column("parent_id", int | None, None),
    Column("children", int, 0),
    Column("children_ended", int, 0),
    Column("children_after", int, 0),
    Column("fail_fast", _Whole, True),
    Column("max_children", int | None, None),
    Column("held", _Whole, False),
    Column("on_parent_expiry", str | None, None),
    Column("outcome", str | None, None),
    Column("finalizing", _Whole, False),
    Column("awaited", _Whole, True),
    Column("on_dependency_failure", OnDependencyFailure | None, None),
    Column("series_id", int | None, None),
    Column("cron", str | None, None),
    Column("paused_at", Instant | None, None),
    Column("preempted", int, 0),
    Column("frozen", _Whole, False),
    Column("gate_id", int | None, None),
    Column("saved", str | None, None),
    Column("replaced", str | None, None),
    # Assume that the key was passed on: another task may hold it.
    Column("gave_key", _Whole, True),
    Column("progress", str | None, None),
    Column("io", str | None, None),
    Column("actual_io", str | None, None),
    Column("last_error", str | None, None),
)
HISTORY = (
    *(column for column in TASK if column.name in _KEPT),
    Column("ending", Ending, None),
    Column("ended_at", Instant, None),
    Column("duration_ms", int | None, None),
    Column("result", str | None, None),
    Column("error", str | None, None),
)
HARMLESS = {column.name: column.harmless for column in TASK}
CONTENT = {"label", "payload", "tags", "overrides", "saved", "replaced", "progress", "io", "actual_io", "last_error"}
"""Texts that only their own task needs: damage in them is handled when the task is claimed or read."""
_SERIES = (
    Column("template", str, None),
    Column("every_ms", Annotated[int, msgspec.Meta(gt=0)], None),
    Column("first_at", Instant, None),
    Column("due_at", Instant, None),
    Column("ttl_ms", int | None, None),
    Column("runs", int, None),
    Column("max_runs", int | None, None),
    Column("paused", _Whole, None),
    Column("made_at", Instant | None, None),
    Column("first_id", int | None, None),
)
ERROR = (
    Column("task_id", int, None),
    Column("attempt", int, None),
    Column("at", Instant, None),
    Column("kind", ErrorKind, None),
    Column("type", str, None),
    Column("exception", str, None),
    Column("location", str, None),
    Column("error", str, None),
    Column("traceback", str | None, None),
    Column("node", str | None, None),
    Column("duration_ms", int | None, None),
    Column("retry_ms", int | None, None),
)
OTHERS = {
    "taskmill_control": (
        "kind || ' ' || name",
        (
            Column("kind", Literal["scheduler", "domain", "group", "type"], None),
            Column("name", str, None),
            Column("change", str | None, None),
            Column("paused_at", Instant | None, None),
            Column("resume_at", Instant | None, None),
            Column("resume_is_relative", _Whole, None),
            Column("bucket", str | None, None),
            Column("full_at", int | None, None),
        ),
    ),
    "taskmill_ended_pause": (
        "kind || ' ' || name",
        (
            Column("kind", Literal["scheduler", "domain", "group"], None),
            Column("name", str, None),
            Column("since", Instant, None),
            Column("until", Instant, None),
            Column("reached", int, None),
        ),
    ),
    "taskmill_setting": ("name", (Column("value", str, None),)),
    "taskmill_type": ("name", (Column("name", str, None), Column("defaults", str, None))),
    "taskmill_dependency": (
        "task_id",
        (Column("task_id", int, None), Column("on_id", int, None), Column("open", _Whole, None)),
    ),
}
"""Key and columns of rows that are never set aside, because a limit, a pause or a dependency would be lost."""
_CRON = (
    Column("position", int, None),
    Column("type", str, None),
    Column("state", str, None),
    Column("task_id", int | None, None),
    Column("runs", int, None),
)
_IO = tuple(Column(name, int, None) for name in ("runs", "disk_read", "disk_write", "net_rx", "net_tx"))
_TALLY = (
    Column("type", str, None),
    Column("group_name", str, None),
    Column("ending", Ending, None),
    Column("ended", int, None),
    Column("kept", int, None),
    Column("duration_ms", int, None),
)
_LOAD = (
    Column("group_name", str, None),
    Column("type", str, None),
    Column("status", Status, None),
    Column("tasks", int, None),
)
_TAG = (Column("name", str, None), Column("value", str, None))
TAGS = "taskmill_task_tag"
KEYS = {
    TAGS: "task_id",
    "taskmill_series": "id",
    "taskmill_cron": "name",
    "taskmill_io": "type",
    "taskmill_tally": "type",
    "taskmill_load": "type",
}
"""Tables whose damaged rows can be deleted, with their keys."""
EXAMINED = {
    **{table: columns for table, (_, columns) in OTHERS.items()},
    "taskmill_task": TASK,
    "taskmill_history": HISTORY,
    "taskmill_error": ERROR,
    TAGS: _TAG,
    "taskmill_series": _SERIES,
    "taskmill_cron": _CRON,
    "taskmill_io": _IO,
    "taskmill_tally": _TALLY,
    "taskmill_load": _LOAD,
}
