"""``taskmill watch``: follow the whole queue, or one task until it ends: its progress, why it waits, how it ended.

Reads the store about twice a second, whichever process runs the task.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
from datetime import UTC, datetime
from typing import Protocol

from taskmill import Ending, HistoryRecord, TaskRecord
from taskmill.cli import output, text
from taskmill.cli.output import DONE, REFUSED, WRONG, Refusal
from taskmill.cli.store_file import VARIABLE, chosen_file, chosen_file_and_id, looking
from taskmill.cli.views.polling import TASK_INTERVAL, TaskPoller, TaskState, state_of


class _View(Protocol):
    """Shows one state after the other; the last one is of an ended task."""

    def draw(self, state: TaskState, /) -> None: ...


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file_and_ids",
        nargs="*",
        metavar="FILE [ID]",
        help=f"the database (may be left out when ${VARIABLE} is set), and the id of one task",
    )
    parser.add_argument("--plain", action="store_true", help="lines instead of the live view")
    parser.add_argument("--once", action="store_true", help="show the queue once and end")


def execute(arguments: argparse.Namespace) -> int:
    words = arguments.file_and_ids
    if not words or (len(words) == 1 and not words[0].isdigit()):
        from taskmill.cli.queue_watch import watch_queue

        return watch_queue(chosen_file(words[0] if words else None), arguments)
    if arguments.once:
        raise Refusal("--once shows the whole queue; show displays one task", WRONG)
    file, id = chosen_file_and_id(words, "watch", "one id, or none for the whole queue")
    with contextlib.ExitStack() as stack:
        view = _JsonLines() if arguments.json else _chosen_view(stack, plain=arguments.plain)
        ended = asyncio.run(_follow(file, id, view))
    return DONE if ended.ending is Ending.COMPLETED else REFUSED


async def _follow(file: str, id: int, view: _View) -> HistoryRecord:
    async with looking(file) as reader:
        poller = TaskPoller(reader, id)
        while True:
            state = await poller.read()
            view.draw(state)
            if state.ended is not None:
                return state.ended
            await asyncio.sleep(TASK_INTERVAL)


def _chosen_view(stack: contextlib.ExitStack, *, plain: bool) -> _View:
    if not output.allows_live_view(plain=plain):
        return _Lines()
    from taskmill.cli.views.live import LiveView
    from taskmill.cli.views.watch import task_frame

    return stack.enter_context(LiveView(task_frame))


class _Lines:
    """Prints a line when the state, the reason, the message or a whole percent has changed."""

    def __init__(self) -> None:
        self._last: object = None

    def draw(self, state: TaskState) -> None:
        if (key := _key(state)) != self._last:
            self._last = key
            output.say(f"{datetime.now().astimezone():%H:%M:%S} {_sentence(state)}")


class _JsonLines:
    """Prints one object per line whenever anything has changed, progress and children included."""

    def __init__(self) -> None:
        self._last: object = None

    def draw(self, state: TaskState) -> None:
        document = _document(state)
        if (key := (_key(state), document["progress"], document["children"])) != self._last:
            self._last = key
            output.print_json_line({"at": datetime.now(UTC), **document})


def _key(state: TaskState) -> object:
    """Return what must change for a new line. Passing time and varying rates are not in it."""
    record, why = state.record, state.why
    waits = None if why is None else (*(hold.reason for hold in why.holds), f"{why.ahead:.1g}")
    return state_of(record), record.attempt, waits, _coarse_progress(record)


def _coarse_progress(record: TaskRecord | HistoryRecord) -> object:
    progress = record.progress
    if progress is None:
        return None
    percent = None if progress.fraction is None else int(progress.fraction * 100)
    amount = f"{progress.done_bytes or 0:.2g}" if percent is None else ""
    return percent, amount, progress.message


def _sentence(state: TaskState) -> str:
    record = state.record
    if state.ended is None and state.reason:
        return state.reason
    name = " ".join(filter(None, [f"task {record.id}", record.type, record.label or record.key]))
    return f"{name}: {'; '.join(_parts(state))}"


def _parts(state: TaskState) -> list[str]:
    if (ended := state.ended) is not None:
        parts = [text.ending(ended)]
        if ended.error:
            parts.append(text.first_line(ended.error))
    else:
        progress = "" if state.record.progress is None else text.progress(state.record.progress)
        parts = [", ".join(filter(None, [str(state_of(state.record)), progress]))]
    if state.children is not None:
        parts.append(f"children: {state.children.sentence}")
    return parts


def _document(state: TaskState) -> dict[str, object]:
    record, ended = state.record, state.ended
    return {
        "id": record.id,
        "type": record.type,
        "label": record.label,
        "status": record.status if isinstance(record, TaskRecord) else None,
        "ending": None if ended is None else ended.ending,
        "attempt": record.attempt,
        "progress": record.progress,
        "why": None if state.why is None else state.why.summary,
        "holds": [] if state.why is None else state.why.holds,
        "children": None if state.children is None else state.children.counts,
        "last_error": record.last_error,
        "duration": None if ended is None else ended.duration,
        "result": None if ended is None else ended.result,
        "error": None if ended is None else ended.error,
    }
