"""``taskmill groups``: who shares the slots and how, live if wanted; and the settings and pauses of one group."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Protocol

from taskmill import Snapshot
from taskmill.cli import machine_output, screen
from taskmill.cli.group_changes import changed
from taskmill.cli.group_table import NUMBERS, group_table, headlines
from taskmill.cli.refusal import DONE, WRONG, Refusal
from taskmill.cli.store_file import VARIABLE, chosen_file, opened, shown

SUMMARY = "Show how groups share the slots; set, pause and resume a group"

LOOK_INTERVAL = 1.0
ACTIONS = ("set", "pause", "resume", "reset-weights")
OPTIONS = {
    "set": ("weight", "cap", "min_slots", "rate", "burst"),
    "pause": ("for", "until"),
}
USAGE = """\
taskmill groups [FILE] [--watch] [--json]
       taskmill groups [FILE] set NAME [--weight W] [--cap N] [--min-slots N]
                                       [--rate RATE [--burst N]]
       taskmill groups [FILE] pause NAME [--for DURATION | --until INSTANT]
       taskmill groups [FILE] resume NAME
       taskmill groups [FILE] reset-weights"""


class View(Protocol):
    """Shows one picture after the other."""

    def draw(self, picture: Snapshot) -> None: ...


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = USAGE
    parser.add_argument(
        "words",
        nargs="*",
        metavar="FILE",
        help=f"the database (default: ${VARIABLE}); then what to do, and with which group ('' for tasks without one)",
    )
    parser.add_argument("--watch", action="store_true", help="look again each second, until Ctrl-C")
    setting = parser.add_argument_group("set")
    setting.add_argument("--weight", metavar="W", help="its part of the slots in proportion to the others")
    setting.add_argument("--cap", metavar="N", help="at most so many slots, or none")
    setting.add_argument("--min-slots", metavar="N", help="so many slots before the rest is shared by weight")
    setting.add_argument("--rate", metavar="RATE", help="how often its tasks may start: 10/s, 100/min, 1/30s or none")
    setting.add_argument(
        "--burst", metavar="N", type=int, help="how many may start at once (default: as many as per interval)"
    )
    pausing = parser.add_argument_group("pause")
    pausing.add_argument("--for", metavar="DURATION", help="90s, 10m, 1h30m; then it resumes by itself")
    pausing.add_argument("--until", metavar="INSTANT", help="2030-01-31T18:30, in local time or with an offset")


def execute(arguments: argparse.Namespace) -> int:
    file, action, name = _order(arguments.words)
    _refuse_strays(arguments, action)
    if action is None:
        return _show(chosen_file(file), arguments)
    said, document = asyncio.run(changed(chosen_file(file), action, name, arguments))
    if arguments.json:
        machine_output.print_document(document)
    else:
        screen.say(said)
    return DONE


# What is asked for


def _order(given: list[str]) -> tuple[str | None, str | None, str]:
    """The file if there is one, the action if there is one, and its group.

    A file that is named like an action can be written ``./set``.
    """
    file = given[0] if given and given[0] not in ACTIONS else None
    rest = given if file is None else given[1:]
    if not rest:
        return file, None, ""
    action, *names = rest
    if action not in ACTIONS:
        raise Refusal(f"groups can {', '.join(ACTIONS[:-1])} or {ACTIONS[-1]}, not {action!r}", WRONG)
    if action == "reset-weights":
        if names:
            raise Refusal("reset-weights is for all groups and takes no name", WRONG)
        return file, action, ""
    if len(names) != 1:
        raise Refusal(f"{action} takes the name of one group ('' for tasks without one)", WRONG)
    return file, action, names[0]


def _refuse_strays(arguments: argparse.Namespace, action: str | None) -> None:
    for owner, names in OPTIONS.items():
        for name in names:
            if action != owner and getattr(arguments, name) is not None:
                raise Refusal(f"--{name.replace('_', '-')} goes with {owner}", WRONG)
    if action is not None and arguments.watch:
        raise Refusal(f"--watch shows groups and does not go with {action}", WRONG)


# Showing


def _show(file: str, arguments: argparse.Namespace) -> int:
    if not arguments.watch:
        picture = asyncio.run(_look(file))
        if arguments.json:
            machine_output.print_document(_document(file, picture))
        else:
            _chosen_print()(picture)
        return DONE
    last: list[Snapshot] = []
    with contextlib.ExitStack() as stack:
        view = _JsonLines(file) if arguments.json else _chosen_view(file, stack)
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(_watch(file, view, last))
    if last and not isinstance(view, _JsonLines | _Plain):
        # The live view leaves the terminal as it was; the last picture stays to be read.
        _chosen_print()(last[0])
    return DONE


async def _look(file: str) -> Snapshot:
    async with opened(file) as scheduler:
        return await scheduler.snapshot()


async def _watch(file: str, view: View, last: list[Snapshot]) -> None:
    async with opened(file) as scheduler:
        while True:
            last[:] = [await scheduler.snapshot()]
            view.draw(last[0])
            await asyncio.sleep(LOOK_INTERVAL)


def _document(file: str, picture: Snapshot) -> dict[str, object]:
    groups = picture.groups.values()
    return {
        "store": shown(file),
        "dispatching": picture.has_dispatcher,
        "max_concurrency": picture.max_concurrency,
        "is_shared": picture.is_shared,
        "paused": picture.paused,
        "paused_domains": picture.paused_domains,
        "pressure": picture.pressure,
        "groups": picture.groups,
        "total": {
            "slots": sum(group.slots for group in groups),
            "running": sum(group.running for group in groups),
            "pending": sum(group.pending for group in groups),
        },
    }


def _chosen_print() -> Callable[[Snapshot], None]:
    if screen.is_terminal() and screen.has_rich():
        from taskmill.cli.group_view import print_groups

        return print_groups
    return _print_plain


def _print_plain(picture: Snapshot) -> None:
    for line in headlines(picture):
        screen.say(line)
    if not picture.groups:
        screen.say("no group has work or settings")
        return
    found = group_table(picture)
    total = [found.total] if len(found.groups) > 1 else []
    screen.say()
    screen.table(found.headings, [*found.rows, *total], numbers=NUMBERS)


def _chosen_view(file: str, stack: contextlib.ExitStack) -> View:
    if not screen.is_terminal():
        return _Plain()
    if not screen.has_rich():
        screen.complain(f"the live view needs rich: {screen.INSTALL_RICH}; going on in plain lines")
        return _Plain()
    from taskmill.cli.group_view import GroupView

    return stack.enter_context(GroupView(shown(file)))


class _Plain:
    """A table each time, with its hour, for pipes and logs."""

    def draw(self, picture: Snapshot) -> None:
        screen.say(f"{datetime.now().astimezone():%H:%M:%S}")
        _print_plain(picture)
        screen.say()


class _JsonLines:
    """One object per line each time."""

    def __init__(self, file: str) -> None:
        self._file = file

    def draw(self, picture: Snapshot) -> None:
        machine_output.print_line({"at": datetime.now(UTC), **_document(self._file, picture)})
