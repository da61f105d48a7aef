"""``taskmill forecast``: say when the tasks of the queue will start and end, and how sure that is."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime

from msgspec import structs

from taskmill import Forecast, Outlook, Range
from taskmill.cli import output, quantities, tables, text
from taskmill.cli.output import DONE, WRONG, Refusal
from taskmill.cli.store_file import VARIABLE, chosen_file, dispatcher_of, opened

LATER = "later"
"""Shown for an instant beyond the horizon."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", nargs="?", metavar="FILE", help=f"the database (default: ${VARIABLE})")
    parser.add_argument("--horizon", metavar="DURATION", help="how far to look ahead (default: 7 days)")
    parser.add_argument(
        "--samples", metavar="N", type=int, default=200, help="number of simulated futures (default: 200)"
    )
    parser.add_argument("--seed", metavar="N", type=int, help="repeat a forecast exactly")


def execute(arguments: argparse.Namespace) -> int:
    if arguments.samples < 1:
        raise Refusal("--samples must be at least 1", WRONG)
    forecast, dispatcher = asyncio.run(_find(chosen_file(arguments.file), arguments))
    if arguments.json:
        output.print_json({name: value for name, value in structs.asdict(forecast).items() if name != "tasks"})
        return DONE
    if not forecast.types:
        output.say("no task is active")
        return DONE
    if dispatcher is None:
        output.paragraph("nothing dispatches this store now; this is what would happen if a scheduler started now")
    output.paragraph(f"all tasks that are active now will have ended {spoken_range(forecast.empty_at)}")
    output.say()
    times = ["next start", "last end"]
    tables.table(["", "name", *times], _rows(forecast), middle=frozenset({"name"}), wrap=frozenset(times))
    for note in forecast.notes:
        output.paragraph(f"note: {note}")
    return DONE


async def _find(file: str, arguments: argparse.Namespace) -> tuple[Forecast, str | None]:
    horizon = None if arguments.horizon is None else quantities.duration(arguments.horizon, "--horizon")
    async with opened(file) as scheduler:
        forecast = await scheduler.forecast(horizon, arguments.samples, arguments.seed)
        return forecast, await dispatcher_of(scheduler)


def _rows(forecast: Forecast) -> list[list[str]]:
    priorities = {text.priority_level(level): each for level, each in forecast.priorities.items()}
    groups = {text.group_name(name): each for name, each in forecast.groups.items()}
    parts: list[tuple[str, Mapping[str, Outlook]]] = [
        ("group", groups),
        ("type", forecast.types),
        ("priority", priorities),
    ]
    return [
        [kind, name, spoken_range(each.start), spoken_range(each.end)]
        for kind, found in parts
        for name, each in found.items()
    ]


def spoken_range(found: Range[datetime] | None) -> str:
    """Return ``in 5 min (in 4 min to in 7 min)``; eight of ten samples are within the range in brackets."""
    if found is None:
        return LATER
    low, middle, high = map(_ahead, (found.p10, found.p50, found.p90))
    return middle if low == high else f"{middle} ({low} to {high})"


def _ahead(at: datetime | None) -> str:
    """Return ``in 5 min``; an instant that has passed while the forecast was made is ``now``."""
    now = datetime.now(UTC)
    return LATER if at is None else text.ago(max(at, now), now)
