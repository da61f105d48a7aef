"""``taskmill groups``: show how groups share the slots, once or live; set, pause and resume a group."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any, Protocol

from taskmill import Group, Scheduler, Snapshot
from taskmill.cli import output, quantities, tables, text
from taskmill.cli.known_groups import unknown_group
from taskmill.cli.output import DONE, WRONG, Refusal
from taskmill.cli.store_file import VARIABLE, chosen_file, looking, opened, shown
from taskmill.cli.views.group_table import NUMBERS, group_table, headlines, settings
from taskmill.reading import Reader, ask

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

Answer = tuple[str, object]
"""The sentence to print, and the value to print with ``--json``."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = USAGE
    parser.add_argument(
        "words",
        nargs="*",
        metavar="FILE",
        help=f"the database (default: ${VARIABLE}); then an action and the name of a group ('' for tasks without one)",
    )
    parser.add_argument("--watch", action="store_true", help="refresh each second, until Ctrl-C")
    setting = parser.add_argument_group("set")
    setting.add_argument("--weight", metavar="W", help="share of the slots in proportion to the other groups")
    setting.add_argument("--cap", metavar="N", help="the largest number of slots, or none")
    setting.add_argument("--min-slots", metavar="N", help="slots it gets before the rest is shared by weight")
    setting.add_argument("--rate", metavar="RATE", help="how often its tasks may start: 10/s, 100/min, 1/30s or none")
    setting.add_argument(
        "--burst", metavar="N", type=int, help="how many may start at once (default: the number in the rate)"
    )
    pausing = parser.add_argument_group("pause")
    pausing.add_argument("--for", metavar="DURATION", help="90s, 10m, 1h30m; then the group resumes by itself")
    pausing.add_argument("--until", metavar="INSTANT", help="2030-01-31T18:30, in local time or with an offset")


def execute(arguments: argparse.Namespace) -> int:
    file, action, name = _split(arguments.words)
    _refuse_stray_options(arguments, action)
    if action is None:
        return _show(chosen_file(file), arguments)
    sentence, document = asyncio.run(_change(chosen_file(file), action, name, arguments))
    if arguments.json:
        output.print_json(document)
    else:
        output.say(sentence)
    return DONE


# Arguments


def _split(given: list[str]) -> tuple[str | None, str | None, str]:
    """Return the file and the action, ``None`` if they are not given, and the name of the group.

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


def _refuse_stray_options(arguments: argparse.Namespace, action: str | None) -> None:
    for owner, names in OPTIONS.items():
        for name in names:
            if action != owner and getattr(arguments, name) is not None:
                raise Refusal(f"--{name.replace('_', '-')} can only be used with {owner}", WRONG)
    if action is not None and arguments.watch:
        raise Refusal(f"--watch shows groups and does not go with {action}", WRONG)


def _settings(arguments: argparse.Namespace) -> dict[str, Any]:
    given: dict[str, Any] = {}
    if arguments.weight is not None:
        given["weight"] = quantities.number(arguments.weight, "--weight")
    if arguments.cap is not None:
        given["cap"] = quantities.cap(arguments.cap, "--cap")
    if arguments.min_slots is not None:
        given["min_slots"] = quantities.slots(arguments.min_slots, "--min-slots")
    if arguments.rate is not None:
        given["rate"] = quantities.rate(arguments.rate, "--rate", arguments.burst)
    elif arguments.burst is not None:
        raise Refusal("--burst can only be used with --rate", WRONG)
    if not given:
        raise Refusal("set needs at least one of --weight, --cap, --min-slots, --rate", WRONG)
    # The settings of one command must not contradict each other. A cap of a later command limits an earlier minimum.
    Group(**given)
    return given


def _pause_end(arguments: argparse.Namespace) -> dict[str, Any]:
    duration = getattr(arguments, "for")
    if duration is not None and arguments.until is not None:
        raise Refusal("--for and --until exclude each other", WRONG)
    if duration is not None:
        return {"duration": quantities.duration(duration, "--for")}
    if arguments.until is not None:
        return {"until": quantities.instant(arguments.until, "--until")}
    return {}


# Changing


async def _change(file: str, action: str, name: str, arguments: argparse.Namespace) -> Answer:
    """Change a group, and return its new state."""
    match action:
        case "set":
            change = _settings(arguments)
            async with opened(file) as scheduler:
                return await _set(scheduler, name, change)
        case "pause":
            end = _pause_end(arguments)
            async with opened(file) as scheduler:
                return await _pause(scheduler, name, end)
        case "resume":
            async with opened(file) as scheduler:
                return await _resume(scheduler, name)
        case _:
            async with opened(file) as scheduler:
                return await _reset_weights(scheduler)


async def _set(scheduler: Scheduler, name: str, change: dict[str, Any]) -> Answer:
    await scheduler.group(name).set(**change)
    snapshot = await scheduler.snapshot()
    group = snapshot.groups[name]
    if not group.running and not group.pending:
        # The name may be mistyped.
        then = "; no task of it runs or waits now"
    elif snapshot.is_shared:
        then = f"; share now {group.slots} of {text.plural(snapshot.max_concurrency, 'slot')}"
    else:
        then = ""
    return f"{_subject(name)}: {settings(group)}{then}", group


async def _pause(scheduler: Scheduler, name: str, end: dict[str, Any]) -> Answer:
    unknown = await unknown_group(scheduler, name)
    await scheduler.group(name).pause(**end)
    group = (await scheduler.snapshot()).groups[name]
    until = group.paused_until
    when = "until it is resumed" if until is None else f"until {text.local_time(until)}"
    running = f"; {text.plural(group.running, 'running task')} may finish" if group.running else ""
    return f"{_subject(name)}: paused {when}{running}{unknown and '; '}{unknown}", group


async def _resume(scheduler: Scheduler, name: str) -> Answer:
    was_paused = name in (await scheduler.snapshot()).paused_groups
    await scheduler.group(name).resume()
    done = "resumed" if was_paused else "was not paused"
    return f"{_subject(name)}: {done}", {"name": name, "paused": False, "was_paused": was_paused}


async def _reset_weights(scheduler: Scheduler) -> Answer:
    await scheduler.reset_group_weights()
    snapshot = await scheduler.snapshot()
    return f"every group has the same weight; {next(headlines(snapshot))}", snapshot.groups


def _subject(name: str) -> str:
    return f"group {name}" if name else "tasks without a group"


# Showing


def _show(file: str, arguments: argparse.Namespace) -> int:
    if not arguments.watch:
        snapshot = ask(file, Reader.snapshot)
        if arguments.json:
            output.print_json(_document(file, snapshot))
        else:
            _chosen_print()(snapshot)
        return DONE
    last: list[Snapshot] = []
    with contextlib.ExitStack() as stack:
        view = _JsonLines(file) if arguments.json else _chosen_view(file, stack)
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(_watch(file, view, last))
    if last and not isinstance(view, _JsonLines | _Tables):
        # The live view has restored the terminal; print the last state so that it stays visible.
        _chosen_print()(last[0])
    return DONE


async def _watch(file: str, view: _View, last: list[Snapshot]) -> None:
    """Draw a snapshot each second, and keep the newest in ``last``."""
    async with looking(file) as reader:
        while True:
            last[:] = [await reader.snapshot()]
            view.draw(last[0])
            await asyncio.sleep(LOOK_INTERVAL)


def _document(file: str, snapshot: Snapshot) -> dict[str, object]:
    groups = snapshot.groups.values()
    return {
        "store": shown(file),
        "dispatching": snapshot.has_dispatcher,
        "max_concurrency": snapshot.max_concurrency,
        "is_shared": snapshot.is_shared,
        "paused": snapshot.paused,
        "paused_domains": snapshot.paused_domains,
        "pressure": snapshot.pressure,
        "groups": snapshot.groups,
        "total": {
            "slots": sum(group.slots for group in groups),
            "running": sum(group.running for group in groups),
            "pending": sum(group.pending for group in groups),
        },
    }


def _chosen_print() -> Callable[[Snapshot], None]:
    if output.is_terminal() and output.has_rich():
        from taskmill.cli.views.groups import print_groups

        return print_groups
    return _print_plain


def _print_plain(snapshot: Snapshot) -> None:
    for line in headlines(snapshot):
        output.say(line)
    if not snapshot.groups:
        output.say("no group has work or settings")
        return
    found = group_table(snapshot)
    total = [found.total] if len(found.groups) > 1 else []
    output.say()
    tables.table(found.headings, [*found.rows, *total], numbers=NUMBERS)


class _View(Protocol):
    def draw(self, state: Snapshot, /) -> None: ...


def _chosen_view(file: str, stack: contextlib.ExitStack) -> _View:
    if not output.allows_live_view():
        return _Tables()
    from taskmill.cli.views.groups import groups_frame
    from taskmill.cli.views.live import LiveView

    return stack.enter_context(LiveView(partial(groups_frame, shown(file)), screen=True))


class _Tables:
    """Prints a table each time, with the time of day, for pipes and logs."""

    def draw(self, state: Snapshot) -> None:
        output.say(f"{datetime.now().astimezone():%H:%M:%S}")
        _print_plain(state)
        output.say()


class _JsonLines:
    """Prints each snapshot as one line of JSON."""

    def __init__(self, file: str) -> None:
        self._file = file

    def draw(self, state: Snapshot) -> None:
        output.print_json_line({"at": datetime.now(UTC), **_document(self._file, state)})
