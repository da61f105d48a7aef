"""The errors of a task's attempts as lines, and groups of errors as a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from taskmill import AttemptError, ErrorGroup
from taskmill.cli import text

HEADINGS = ("count", "dead", "last", "task", "type", "exception", "location")
NUMBERS = frozenset({"count", "dead", "task"})
LONG = frozenset({"type", "exception", "location"})
_DEEDS = {"failed": "failed", "timeout": "exceeded its timeout", "crashed": "crashed", "gave_up": "gave up"}


def attempt_lines(errors: Sequence[AttemptError], *, tracebacks: bool) -> Iterator[str]:
    """Return what went wrong in each attempt, oldest first; with ``tracebacks``, an empty line between attempts."""
    for place, error in enumerate(errors):
        if tracebacks and place:
            yield ""
        took = "" if error.duration is None else f" after {text.duration(error.duration)}"
        node = "" if error.node is None else f" on {error.node}"
        yield f"attempt {error.attempt} {_DEEDS[error.kind]}{took}{node}, {text.local_time(error.at)}"
        if tracebacks:
            yield from (f"  {line}" for line in (error.traceback or error.error).splitlines())
        else:
            yield f"  {text.first_line(error.error)}"


def group_rows(groups: Sequence[ErrorGroup]) -> list[list[str]]:
    """Return a row per group under :data:`HEADINGS`."""
    return [
        [
            f"{group.count:,}",
            f"{group.dead_letters:,}" if group.dead_letters else "-",
            text.ago(group.last_at),
            str(group.sample_ids[0]),
            group.type,
            group.exception,
            group.location or "-",
        ]
        for group in groups
    ]
