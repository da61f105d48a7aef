"""What ``taskmill groups`` can change: the settings of a group, its pauses, the weights of all."""

from __future__ import annotations

import argparse
from typing import Any

from taskmill import Group, Scheduler
from taskmill.cli import quantities, words
from taskmill.cli.group_table import headlines, settings
from taskmill.cli.refusal import WRONG, Refusal
from taskmill.cli.store_file import opened

Answer = tuple[str, object]
"""What is said to a person, and to a program."""


async def changed(file: str, action: str, name: str, arguments: argparse.Namespace) -> Answer:
    """Do what is asked for, and tell how things are now."""
    match action:
        case "set":
            change = _change(arguments)
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
    picture = await scheduler.snapshot()
    group = picture.groups[name]
    if not group.running and not group.pending:
        # A name mistyped looks just like this.
        then = "; no task of it runs or waits now"
    elif picture.is_shared:
        then = f"; share now {group.slots} of {words.plural(picture.max_concurrency, 'slot')}"
    else:
        then = ""
    return f"{_subject(name)}: {settings(group)}{then}", group


async def _pause(scheduler: Scheduler, name: str, end: dict[str, Any]) -> Answer:
    await scheduler.group(name).pause(**end)
    group = (await scheduler.snapshot()).groups[name]
    until = group.paused_until
    when = "until it is resumed" if until is None else f"until {words.local_time(until)}"
    goes_on = f"; {words.plural(group.running, 'running task')} may finish" if group.running else ""
    return f"{_subject(name)}: paused {when}{goes_on}", group


async def _resume(scheduler: Scheduler, name: str) -> Answer:
    was_paused = name in (await scheduler.snapshot()).paused_groups
    await scheduler.group(name).resume()
    said = "goes on" if was_paused else "was not paused"
    return f"{_subject(name)}: {said}", {"name": name, "paused": False, "was_paused": was_paused}


async def _reset_weights(scheduler: Scheduler) -> Answer:
    await scheduler.reset_group_weights()
    picture = await scheduler.snapshot()
    return f"every group has the same weight; {next(headlines(picture))}", picture.groups


def _subject(name: str) -> str:
    return f"group {name}" if name else "tasks without a group"


# What is typed


def _change(arguments: argparse.Namespace) -> dict[str, Any]:
    change: dict[str, Any] = {}
    if arguments.weight is not None:
        change["weight"] = quantities.number(arguments.weight, "--weight")
    if arguments.cap is not None:
        change["cap"] = quantities.cap(arguments.cap, "--cap")
    if arguments.min_slots is not None:
        change["min_slots"] = quantities.slots(arguments.min_slots, "--min-slots")
    if arguments.rate is not None:
        change["rate"] = quantities.rate(arguments.rate, "--rate", arguments.burst)
    elif arguments.burst is not None:
        raise Refusal("--burst goes with --rate", WRONG)
    if not change:
        raise Refusal("set needs at least one of --weight, --cap, --min-slots, --rate", WRONG)
    # What contradicts itself on one line is a slip; said apart, a later cap bounds an earlier minimum.
    Group(**change)
    return change


def _pause_end(arguments: argparse.Namespace) -> dict[str, Any]:
    duration = getattr(arguments, "for")
    if duration is not None and arguments.until is not None:
        raise Refusal("--for and --until exclude each other", WRONG)
    if duration is not None:
        return {"duration": quantities.duration(duration, "--for")}
    if arguments.until is not None:
        return {"until": quantities.instant(arguments.until, "--until")}
    return {}
