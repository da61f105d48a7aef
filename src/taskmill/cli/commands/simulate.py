"""``taskmill simulate``: try other settings, side by side with the present ones. Nothing is changed."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from taskmill import Comparison, Range, Run
from taskmill.cli import output, quantities, tables, text
from taskmill.cli.known_groups import unknown_group
from taskmill.cli.output import DONE, WRONG, Refusal
from taskmill.cli.store_file import VARIABLE, chosen_file, opened

GROUP_FIELDS = ("weight", "cap", "min_slots", "rate")
AGING_FIELDS = ("grace", "interval", "step", "ceiling", "urgent")
NUMBERS = frozenset({"now", "then"})
EXAMPLE = "--slots 16, or --group beta.weight=9; taskmill simulate --help lists them"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", nargs="?", metavar="FILE", help=f"the database (default: ${VARIABLE})")
    trying = parser.add_argument_group("settings to try")
    trying.add_argument("--slots", metavar="N", help="another max_concurrency")
    trying.add_argument(
        "--group", metavar="NAME.FIELD=VALUE", action="append", default=[], help="such as beta.weight=9 or beta.cap=4"
    )
    trying.add_argument("--default-group", metavar="FIELD=VALUE", action="append", default=[], help="such as cap=4")
    trying.add_argument("--aging", metavar="FIELD=VALUE", action="append", default=[], help="such as grace=60")
    trying.add_argument("--rate", metavar="TYPE=RATE", action="append", default=[], help="such as sync::send=10/s")
    trying.add_argument("--resume", metavar="GROUP", action="append", default=[], help="as if this group were resumed")
    parser.add_argument(
        "--replay", metavar="DURATION", help="simulate the ended tasks of that past time instead of the queue"
    )
    parser.add_argument("--horizon", metavar="DURATION", help="how far to look ahead (default: 7 days)")
    parser.add_argument("--seed", metavar="N", type=int, help="repeat a simulation exactly")
    parser.add_argument("--svg", metavar="PICTURE", help="also write a picture to this file")


def execute(arguments: argparse.Namespace) -> int:
    changes = _changes(arguments)
    comparison, unknown = asyncio.run(_find(chosen_file(arguments.file), changes, arguments))
    if arguments.svg is not None:
        from taskmill.cli.views.comparison_picture import drawn

        try:
            Path(arguments.svg).write_text(drawn(comparison), encoding="utf-8")
        except OSError as wrong:
            raise Refusal(f"{arguments.svg} cannot be written: {wrong.strerror}", WRONG) from wrong
    if arguments.json:
        output.print_json(comparison)
        return DONE
    # Without changes both runs are the same.
    headings, runs = ["", "now", "then"], [comparison.before, comparison.after]
    if not changes:
        del headings[2:], runs[1:]
    tables.table(headings, _rows(runs), numbers=NUMBERS, middle=frozenset({""}), wrap=NUMBERS)
    for note in (*comparison.notes, *unknown):
        output.paragraph(f"note: {note}")
    if not changes:
        output.paragraph(f"to compare, add settings to try: {EXAMPLE}")
    return DONE


async def _find(file: str, changes: Mapping[str, Any], arguments: argparse.Namespace) -> tuple[Comparison, list[str]]:
    """Return the comparison, and a remark about each group to resume that is not known."""
    horizon, replay = (
        None if given is None else quantities.duration(given, name)
        for given, name in ((arguments.horizon, "--horizon"), (arguments.replay, "--replay"))
    )
    async with opened(file) as scheduler:
        comparison = await scheduler.simulate(changes, horizon=horizon, replay=replay, seed=arguments.seed)
        remarks = [await unknown_group(scheduler, name) for name in arguments.resume]
        return comparison, [remark for remark in remarks if remark]


# Settings


def _changes(arguments: argparse.Namespace) -> dict[str, Any]:
    changes: dict[str, Any] = {}
    if arguments.slots is not None:
        changes["max_concurrency"] = quantities.slots(arguments.slots, "--slots")
    for given in arguments.group:
        name, dot, setting = _split(given, "--group")[0].rpartition(".")
        if not dot:
            raise Refusal(f"--group is written as NAME.FIELD=VALUE, such as beta.weight=9; got {given!r}", WRONG)
        field = _group_field(setting, _split(given, "--group")[1], "--group")
        changes.setdefault("groups", {}).setdefault(name, {}).update(field)
    for given in arguments.default_group:
        changes.setdefault("default_group", {}).update(
            _group_field(*_split(given, "--default-group"), "--default-group")
        )
    for given in arguments.aging:
        name, value = _split(given, "--aging")
        changes.setdefault("aging", {})[name] = _aging_value(name, value)
    for given in arguments.rate:
        name, value = _split(given, "--rate")
        changes.setdefault("rates", {})[name] = quantities.rate(value, "--rate")
    if arguments.resume:
        changes["resume"] = arguments.resume
    return changes


def _split(given: str, option: str) -> tuple[str, str]:
    name, equals, value = given.rpartition("=")
    if not equals or not name:
        raise Refusal(f"{option} is written as NAME=VALUE, got {given!r}", WRONG)
    return name, value


def _group_field(name: str, value: str, option: str) -> dict[str, Any]:
    match name.replace("-", "_"):
        case "weight":
            return {"weight": quantities.number(value, f"{option} weight")}
        case "cap":
            return {"cap": quantities.cap(value, f"{option} cap")}
        case "min_slots":
            return {"min_slots": quantities.slots(value, f"{option} min_slots")}
        case "rate":
            return {"rate": quantities.rate(value, f"{option} rate")}
        case _:
            raise Refusal(f"{option}: a group has {', '.join(GROUP_FIELDS)}, not {name!r}", WRONG)


def _aging_value(name: str, value: str) -> Any:
    if name not in AGING_FIELDS:
        raise Refusal(f"--aging: aging has {', '.join(AGING_FIELDS)}, not {name!r}", WRONG)
    if name in ("grace", "interval"):
        return quantities.duration(value, f"--aging {name}")
    if name == "step":
        return quantities.slots(value, "--aging step")
    return quantities.priority(value)


# The table


def _rows(runs: Sequence[Run]) -> list[list[str]]:
    groups, priorities = [run.waits.groups for run in runs], [run.waits.priorities for run in runs]
    rows = [[f"wait in {text.group_name(name)}", *_waits(groups, name)] for name in _names(groups)]
    rows += [[f"wait at {text.priority_level(level)}", *_waits(priorities, level)] for level in _names(priorities)]
    rows += [[name, *map(value, runs)] for name, value in _FACTS]
    return rows


def _names(found: Sequence[Mapping[Any, object]]) -> Sequence[Any]:
    return list(dict.fromkeys(name for each in found for name in each))


def _waits(found: Sequence[Mapping[Any, Range[timedelta]]], name: object) -> list[str]:
    return [_wait(each.get(name)) for each in found]


def _wait(found: Range[timedelta] | None) -> str:
    """Return the median, and in brackets the range of eight of ten tasks."""
    if found is None or found.p10 is None or found.p50 is None or found.p90 is None:
        return "-"
    low, high = text.duration(found.p10), text.duration(found.p90)
    return text.duration(found.p50) if low == high else f"{text.duration(found.p50)} ({low} to {high})"


def _ends(run: Run) -> str:
    """Return the end to the minute, so that two fit side by side."""
    return f"{run.ends_at.astimezone():%Y-%m-%d %H:%M} ({text.soon(run.ends_at)})"


_FACTS: Sequence[tuple[str, Callable[[Run], str]]] = (
    ("tasks started", lambda run: f"{len(run.starts):,}"),
    ("not started", lambda run: f"{run.unstarted:,}"),
    ("deadlines missed", lambda run: f"{run.deadlines_missed:,}"),
    ("slots used", lambda run: f"{run.slots_used:.1f}"),
    ("IO", lambda run: text.io(run.io) or "-"),
    ("ends", _ends),
)
