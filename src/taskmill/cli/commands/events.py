"""``taskmill events``: print the latest endings from history as events, or follow events of all processes."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from taskmill import Ending, HistoryRecord, Scheduler, events
from taskmill.cli import output
from taskmill.cli.output import DONE, WRONG, Refusal
from taskmill.cli.store_file import add_file, chosen_file, opened
from taskmill.cli.views.run_lines import sentence
from taskmill.events import Event
from taskmill.model.durations import elapsed

DEFAULT_LAST = 20

KINDS: dict[str, type[Event]] = {
    name.lower(): getattr(events, name)
    for name in events.__all__
    if name not in ("Event", "TaskEvent", "GroupEvent", "EventsMissed")
}

ENDINGS: dict[Ending, tuple[type[Event], Callable[[HistoryRecord], dict[str, Any]]]] = {
    Ending.COMPLETED: (
        events.TaskCompleted,
        lambda record: {"result": record.result, "duration": record.duration or timedelta()},
    ),
    Ending.FAILED: (
        events.TaskFailed,
        lambda record: {"error": record.error or "", "will_retry": False, "retry_after": None},
    ),
    Ending.DEAD_LETTER: (events.TaskDeadLettered, lambda record: {"error": record.error}),
    Ending.CANCELLED: (events.TaskCancelled, lambda _record: {}),
    Ending.SUPERSEDED: (events.TaskSuperseded, lambda _record: {"new_task_id": None}),
    Ending.EXPIRED: (
        events.TaskExpired,
        lambda record: {"dedup_key": record.key, "age": elapsed(record.created_at, record.ended_at)},
    ),
    Ending.DEPENDENCY_FAILED: (events.TaskDependencyFailed, lambda record: {"error": record.error or ""}),
}
"""The event of each ending, and its own fields."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_file(parser)
    parser.add_argument(
        "--follow", action="store_true", help="print starts, progress and endings as they happen, until Ctrl-C"
    )
    parser.add_argument(
        "--last",
        metavar="N",
        type=int,
        help=f"first print the last N endings from history (default: {DEFAULT_LAST}; 0 with --follow)",
    )
    parser.add_argument("--type", metavar="NAME", help="only a task type such as sync::transfer")
    parser.add_argument("--domain", metavar="NAME", help="only the task types of a domain")
    parser.add_argument(
        "--kind",
        metavar="KIND",
        action="append",
        default=[],
        help="only events of a kind, such as TaskCompleted or completed; may be repeated",
    )


def execute(arguments: argparse.Namespace) -> int:
    file, kinds = chosen_file(arguments.file), [_kind(word) for word in arguments.kind]
    last = arguments.last if arguments.last is not None else 0 if arguments.follow else DEFAULT_LAST
    if last < 0:
        raise Refusal("--last must be at least 0", WRONG)
    of_ends = [kind for kind, _ in ENDINGS.values()]
    if not arguments.follow and (unknown := [kind.__name__ for kind in kinds if kind not in of_ends]):
        raise Refusal(f"history has only endings; {unknown[0]} can be seen with --follow, while it happens", WRONG)
    where = {name: getattr(arguments, name) for name in ("type", "domain") if getattr(arguments, name) is not None}
    show: Callable[[Event], None] = output.print_json_line if arguments.json else _print
    try:
        asyncio.run(_show(file, kinds, where, last, show, follow=arguments.follow))
    except KeyboardInterrupt:
        if not arguments.follow:
            raise
    return DONE


def _kind(word: str) -> type[Event]:
    given = word.replace("_", "").lower()
    kind = KINDS.get(given) or KINDS.get(f"task{given}")
    if kind is None:
        known = ", ".join(kind.__name__ for kind in KINDS.values())
        raise Refusal(f"--kind is one of {known}; got {word!r}", WRONG)
    return kind


def _print(event: Event) -> None:
    at = event.at.astimezone()
    is_today = at.date() == datetime.now().astimezone().date()
    when = at.strftime("%H:%M:%S" if is_today else "%Y-%m-%d %H:%M:%S")
    output.paragraph(f"{when} {sentence(event)}", indent=" " * (len(when) + 1))


async def _show(
    file: str,
    kinds: Sequence[type[Event]],
    where: dict[str, Any],
    last: int,
    show: Callable[[Event], None],
    *,
    follow: bool,
) -> None:
    async with opened(file) as scheduler:
        began = datetime.now(UTC)
        # Listen first, so that nothing is lost between the past and the present.
        listener = scheduler.events(*kinds, **where) if follow else None
        shown: set[tuple[type[Event], int]] = set()
        for record in await _latest(scheduler, kinds, where, last):
            event = _past(record)
            show(event)
            if record.ended_at >= began:
                shown.add((type(event), record.id))
        if listener is None:
            return
        async for event in listener:
            both = (type(event), getattr(event, "task_id", 0))
            if both in shown:
                shown.discard(both)
            else:
                show(event)


async def _latest(
    scheduler: Scheduler, kinds: Sequence[type[Event]], where: dict[str, Any], last: int
) -> list[HistoryRecord]:
    """Return the tasks that ended last, the latest at the end."""
    if not last:
        return []
    if not kinds:
        return (await scheduler.history(**where, limit=last))[::-1]
    endings = [ending for ending, (kind, _) in ENDINGS.items() if kind in kinds]
    found = [record for ending in endings for record in await scheduler.history(**where, status=ending, limit=last)]
    return sorted(found, key=lambda record: (record.ended_at, record.id))[-last:]


def _past(record: HistoryRecord) -> Event:
    """Return the event of an ending in history. Its number, ``seq``, is no longer known, and is 0."""
    kind, fields = ENDINGS[record.ending]
    same = {name: getattr(record, name) for name in ("type", "domain", "key", "label", "tags", "group")}
    priorities = {"base_priority": record.priority, "effective_priority": record.effective_priority}
    return kind(seq=0, at=record.ended_at, **{"task_id": record.id, **same, **priorities, **fields(record)})
