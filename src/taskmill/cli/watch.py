"""``taskmill watch``: one task until it ends: how far it is, why it waits, how it ended.

Looks at the file from the outside, about twice a second, whoever dispatches it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
from datetime import UTC, datetime
from typing import Protocol

from taskmill import Ending, HistoryRecord, TaskRecord
from taskmill.cli import machine_output, screen, words
from taskmill.cli.refusal import DONE, REFUSED
from taskmill.cli.sight import LOOK_INTERVAL, Sight, Watcher
from taskmill.cli.store_file import add_file_and_ids, chosen_file_and_id, opened

SUMMARY = "Follow one task until it ends"


class View(Protocol):
    """Shows one sight after the other; the last is of a task that has ended."""

    def draw(self, sight: Sight) -> None: ...


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_file_and_ids(parser, "one")
    parser.add_argument("--plain", action="store_true", help="lines in place of the live view")


def execute(arguments: argparse.Namespace) -> int:
    file, id = chosen_file_and_id(arguments.file_and_ids, "watch")
    with contextlib.ExitStack() as stack:
        view = _JsonLines() if arguments.json else _chosen_view(stack, plain=arguments.plain)
        ended = asyncio.run(_follow(file, id, view))
    return DONE if ended.ending is Ending.COMPLETED else REFUSED


async def _follow(file: str, id: int, view: View) -> HistoryRecord:
    async with opened(file) as scheduler:
        watcher = Watcher(scheduler, id)
        while True:
            sight = await watcher.look()
            view.draw(sight)
            if sight.ending is not None:
                return sight.ending
            await asyncio.sleep(LOOK_INTERVAL)


def _chosen_view(stack: contextlib.ExitStack, *, plain: bool) -> View:
    if plain or not screen.is_terminal():
        return _Lines()
    if not screen.has_rich():
        screen.complain(f"the live view needs rich: {screen.INSTALL_RICH}; going on in plain lines")
        return _Lines()
    from taskmill.cli.watch_view import WatchView

    return stack.enter_context(WatchView())


class _Lines:
    """A line when something has changed that is worth one, for pipes and logs."""

    def __init__(self) -> None:
        self._told: object = None

    def draw(self, sight: Sight) -> None:
        if (news := _news(sight)) != self._told:
            self._told = news
            screen.say(f"{datetime.now().astimezone():%H:%M:%S} {_sentence(sight)}")


class _JsonLines:
    """One object per line, whenever something has changed, any progress and any child included."""

    def __init__(self) -> None:
        self._told: object = None

    def draw(self, sight: Sight) -> None:
        document = _document(sight)
        if (news := (_news(sight), document["progress"], document["children"])) != self._told:
            self._told = news
            machine_output.print_line({"at": datetime.now(UTC), **document})


def _news(sight: Sight) -> object:
    """What tells one line from the one before. Clocks that tick and rates that waver do not."""
    record, why = sight.record, sight.why
    waits = None if why is None else (*(hold.reason for hold in why.holds), f"{why.ahead:.1g}")
    return _state(record), record.attempt, waits, _coarse(record)


def _coarse(record: TaskRecord | HistoryRecord) -> object:
    progress = record.progress
    if progress is None:
        return None
    percent = None if progress.fraction is None else int(progress.fraction * 100)
    amount = f"{progress.done_bytes or 0:.2g}" if percent is None else ""
    return percent, amount, progress.message


def _state(record: TaskRecord | HistoryRecord) -> str:
    return str(record.ending if isinstance(record, HistoryRecord) else record.status)


def _sentence(sight: Sight) -> str:
    record = sight.record
    if sight.ending is None and sight.reason:
        return sight.reason
    name = " ".join(filter(None, [f"task {record.id}", record.type, record.label or record.key]))
    return f"{name}: {'; '.join(_said(sight))}"


def _said(sight: Sight) -> list[str]:
    if (ended := sight.ending) is not None:
        said = [words.ending(ended)]
        if ended.error:
            said.append(words.first_line(ended.error))
    else:
        progress = "" if sight.record.progress is None else words.progress(sight.record.progress)
        said = [", ".join(filter(None, [_state(sight.record), progress]))]
    if sight.family is not None:
        said.append(f"children: {sight.family.sentence}")
    return said


def _document(sight: Sight) -> dict[str, object]:
    record, ended = sight.record, sight.ending
    return {
        "id": record.id,
        "type": record.type,
        "label": record.label,
        "status": record.status if isinstance(record, TaskRecord) else None,
        "ending": None if ended is None else ended.ending,
        "attempt": record.attempt,
        "progress": record.progress,
        "why": None if sight.why is None else sight.why.summary,
        "holds": [] if sight.why is None else sight.why.holds,
        "children": None if sight.family is None else sight.family.counts,
        "last_error": record.last_error,
        "duration": None if ended is None else ended.duration,
        "result": None if ended is None else ended.result,
        "error": None if ended is None else ended.error,
    }
