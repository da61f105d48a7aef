"""Change many tasks: choose them by ids or by filters, show how many match, ask, and work in batches.

A batch is a few transactions at most, so that programs on the same store are not held up. A command that is killed
leaves each task changed or unchanged; the same command, run again, changes the rest.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from taskmill import Ending, HistoryRecord, Scheduler, Status, TaskmillError, TaskRecord
from taskmill.cli import output, tables, text
from taskmill.cli.filters import add_filter_arguments, filters_from
from taskmill.cli.output import DONE, INTERRUPTED, REFUSED, WRONG, Refusal
from taskmill.cli.store_file import VARIABLE, chosen_file, chosen_file_and_ids, opened

PAGE = 1000
"""Tasks that are read at once."""
BATCH = 100
"""Tasks that are changed between two steps of the progress bar."""
SHOWN = 5
"""Tasks that are shown before the question."""
LISTED = 10
"""Refused tasks that are listed by name."""

LONGEST_TYPE = 28
"""Columns of a terminal that the name of a task type takes at most."""

Record = TaskRecord | HistoryRecord


@dataclass(frozen=True)
class Result:
    """What became of one task: an outcome for programs, a sentence for people."""

    id: int
    outcome: str
    sentence: str
    is_refusal: bool = False
    more: Mapping[str, object] = field(default_factory=dict[str, object])
    """Further fields for programs."""

    @property
    def document(self) -> dict[str, object]:
        return {"id": self.id, "outcome": self.outcome, **self.more}


@dataclass(frozen=True)
class Action:
    """What a command does with tasks."""

    verb: str
    doing: str
    of_dead: bool
    """True if it is done with dead letters, False for active tasks."""
    do: Callable[[Scheduler, Sequence[int], dict[str, Any]], Awaitable[list[Result]]]
    """Changes tasks. A task that was found by filters is changed only if it still matches them."""
    outcomes: Mapping[str, str]
    """For each outcome: the text that follows the number of tasks."""

    @property
    def noun(self) -> str:
        return "dead letter" if self.of_dead else "active task"

    def check_status(self, status: str | None) -> None:
        possible = {str(Ending.DEAD_LETTER)} if self.of_dead else set(map(str, Status))
        if status is not None and status not in possible:
            raise Refusal(f"{self.verb} is for {self.noun}s, and --status is {status}", WRONG)

    async def page(self, scheduler: Scheduler, filters: dict[str, Any], last: int | None) -> Sequence[Record]:
        """Return the tasks that match, after those of the page that ended with the task ``last``."""
        wanted = dict(filters)
        if last is not None:
            # History lists the newest first, the queue the oldest.
            wanted["before" if self.of_dead else "after"] = last
        if not self.of_dead:
            return await scheduler.tasks(**wanted)
        wanted["status"] = Ending.DEAD_LETTER
        return await scheduler.history(**wanted)


def add_arguments(parser: argparse.ArgumentParser, usage: str, words: str, also: str = "") -> None:
    begin, indent = f"taskmill {usage}", " " * len(f"usage: taskmill {usage.split(maxsplit=1)[0]} ")
    parser.usage = f"{begin}\n{indent}[--yes] [--dry-run] [--plain] [--json]"
    parser.add_argument(
        "words",
        nargs="*",
        metavar=words,
        help=f"the database (may be left out when ${VARIABLE} is set), then the ids, or none with filters{also}",
    )
    add_consent_arguments(parser)
    parser.add_argument("--plain", action="store_true", help="no progress bar")
    add_filter_arguments(parser)


def add_consent_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--yes", action="store_true", help="do not ask for confirmation")
    parser.add_argument("--dry-run", action="store_true", help="show what matches, and change nothing")


def execute(arguments: argparse.Namespace, words: list[str], action: Action) -> int:
    action.check_status(arguments.status)
    filters = filters_from(arguments)
    if filters.keys() - {"limit"}:
        if len(words) > 1 or (words and words[0].isdigit()):
            raise Refusal("give the ids of tasks, or filters, not both", WRONG)
        return _Bulk(chosen_file(words[0] if words else None), filters, action, arguments).run()
    if not words or (len(words) == 1 and not words[0].isdigit()):
        example = Ending.DEAD_LETTER if action.of_dead else Status.PENDING
        raise Refusal(
            f"give the ids of tasks after FILE, or filters, such as --type sync::transfer or --status {example}", WRONG
        )
    if filters:
        raise Refusal("--limit needs another filter, and is not for ids", WRONG)
    file, ids = chosen_file_and_ids(words)
    if arguments.dry_run:
        raise Refusal("--dry-run is for filters; `taskmill show` shows one task", WRONG)
    return _by_ids(file, ids, action, is_json=arguments.json)


def _by_ids(file: str, ids: Sequence[int], action: Action, *, is_json: bool) -> int:
    async def do() -> list[Result]:
        async with opened(file) as scheduler:
            return [result for id in ids for result in await action.do(scheduler, [id], {})]

    results = asyncio.run(do())
    if is_json:
        output.print_json([result.document for result in results])
    for result in results:
        if result.is_refusal:
            output.complain(result.sentence)
        elif not is_json:
            output.say(result.sentence)
    return REFUSED if any(result.is_refusal for result in results) else DONE


class _Bulk:
    """One command with filters."""

    def __init__(self, file: str, filters: dict[str, Any], action: Action, arguments: argparse.Namespace) -> None:
        self._file = file
        self._filters = filters
        self._action = action
        self._arguments = arguments
        self._ids: list[int] = []
        self._first: list[Record] = []
        self._results: list[Result] = []

    def run(self) -> int:
        asyncio.run(self._find())
        count = text.plural(len(self._ids), self._action.noun)
        if self._arguments.dry_run:
            return self._print_matches(count)
        if self._ids and not self._arguments.yes and not self._agrees(count):
            output.say("nothing was changed")
            return REFUSED
        try:
            if self._ids:
                asyncio.run(self._change())
        except (TaskmillError, KeyboardInterrupt) as wrong:
            reason = "" if isinstance(wrong, KeyboardInterrupt) else f": {wrong}"
            output.complain(
                f"interrupted after {len(self._results):,} of {count}{reason}; run the same command again for the rest"
            )
            return INTERRUPTED if isinstance(wrong, KeyboardInterrupt) else output.exit_code(wrong)
        return self._print_results(count)

    async def _find(self) -> None:
        """Read all ids first: a task that is changed leaves the pages, and its place in them is then unknown."""
        left = self._filters.pop("limit", None)
        known: set[int] = set()
        async with opened(self._file) as scheduler:
            last: int | None = None
            while left is None or left > 0:
                limit = PAGE if left is None else min(PAGE, left)
                page = await self._action.page(scheduler, {**self._filters, "limit": limit}, last)
                new = [record for record in page if record.id not in known]
                if not new:
                    return
                known.update(record.id for record in new)
                self._ids += [record.id for record in new]
                self._first = self._first or new[:SHOWN]
                left = None if left is None else left - len(new)
                last = page[-1].id

    async def _change(self) -> None:
        total = len(self._ids)
        with self._bar(total) as draw:
            async with opened(self._file) as scheduler:
                for start in range(0, total, BATCH):
                    self._results += await self._action.do(scheduler, self._ids[start : start + BATCH], self._filters)
                    draw(min(start + BATCH, total), total)

    @contextlib.contextmanager
    def _bar(self, total: int) -> Generator[Callable[[int, int], None], None, None]:
        plain = self._arguments.plain or self._arguments.json
        if total <= BATCH or not output.allows_live_view(plain=plain):
            yield lambda _done, _total: None
            return
        from taskmill.cli.views.bar import bar

        with bar(self._action.doing, "{:,}".format) as draw:
            yield draw

    # Asking

    def _agrees(self, count: str) -> bool:
        """Ask; raise ``Refusal`` if there is no terminal to ask on."""
        verb, matches = self._action.verb, f"{count} match{'es' if len(self._ids) == 1 else ''}"
        check_can_ask(self._arguments, f"{matches}; add --yes to {verb} them, or --dry-run to see them")
        self._print_first(matches)
        return asked(f"{verb} {'it' if len(self._ids) == 1 else f'all {len(self._ids):,}'}?")

    def _print_first(self, matches: str) -> None:
        more = len(self._ids) - len(self._first)
        output.say(f"{matches}:")
        headings = ["id", "ended" if self._action.of_dead else "status", "type", "about"]
        tables.table(headings, [_row(record) for record in self._first], numbers=frozenset({"id"}))
        if more > 0:
            output.say(f"… and {more:,} more")

    # Reporting

    def _print_matches(self, count: str) -> int:
        if self._arguments.json:
            output.print_json({"matched": len(self._ids), "dry_run": True, "ids": self._ids})
        elif self._ids:
            self._print_first(f"{count} match{'es' if len(self._ids) == 1 else ''}, and nothing was changed")
        else:
            output.say(f"no {self._action.noun} matches")
        return DONE

    def _print_results(self, count: str) -> int:
        refused = [result for result in self._results if result.is_refusal]
        if self._arguments.json:
            results = [result.document for result in self._results]
            output.print_json({"matched": len(self._ids), "dry_run": False, "results": results})
        elif not self._ids:
            output.say(f"no {self._action.noun} matches; nothing was changed")
        else:
            for outcome, said in self._action.outcomes.items():
                if number := sum(result.outcome == outcome for result in self._results):
                    output.say(f"{text.plural(number, self._action.noun)} {said}")
        for result in refused[:LISTED]:
            output.complain(result.sentence)
        if len(refused) > LISTED:
            output.complain(f"{len(refused) - LISTED:,} more of {count} could not be changed; --json lists all")
        return REFUSED if refused else DONE


def check_can_ask(arguments: argparse.Namespace, instead: str) -> None:
    """Raise ``Refusal`` if there is no terminal to ask on."""
    if arguments.json or not (sys.stdin.isatty() and output.is_terminal()):
        raise Refusal(instead, REFUSED)


def asked(question: str) -> bool:
    """Ask a question on the terminal; True if the answer is yes."""
    sys.stdout.write(f"{question} [y/N] ")
    sys.stdout.flush()
    answer = sys.stdin.readline()
    if not answer.endswith("\n"):
        # The end of the input, Ctrl-D, leaves the cursor behind the question.
        output.say()
    return answer.strip().lower() in ("y", "yes")


def _row(record: Record) -> list[str]:
    if isinstance(record, HistoryRecord):
        state, error = text.ago(record.ended_at), record.error
    else:
        state, error = str(record.status), record.last_error
    # On a terminal a long name must not push the other columns out.
    type = text.cut(record.type, LONGEST_TYPE) if output.is_terminal() else record.type
    about = " · ".join(filter(None, [text.subject(record), text.first_line(error or "")]))
    return [str(record.id), state, type, about]
