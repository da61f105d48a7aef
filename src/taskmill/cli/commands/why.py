"""``taskmill why``: say why a task waits, with the numbers, and when it may start."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Iterator

from taskmill import Ending, Explanation, Status
from taskmill.cli import output, tables, text
from taskmill.cli.output import DONE
from taskmill.cli.store_file import add_file_and_ids, chosen_file_and_id, looking


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_file_and_ids(parser, "one")


def execute(arguments: argparse.Namespace) -> int:
    file, id = chosen_file_and_id(arguments.file_and_ids, "why")
    explanation = asyncio.run(_explain(file, id))
    if arguments.json:
        output.print_json(explanation)
    else:
        _print(explanation)
    return DONE


async def _explain(file: str, id: int) -> Explanation:
    async with looking(file) as reader:
        return await reader.explain(id)


def _print(explanation: Explanation) -> None:
    output.paragraph(str(explanation))
    if explanation.holds:
        output.say()
        rows = [[text.spoken(hold.reason), hold.detail] for hold in explanation.holds]
        tables.table(["held by", "because"], rows, wrap=frozenset({"because"}))
    if not isinstance(explanation.status, Ending):
        output.say()
        output.facts(_facts(explanation))


def _facts(explanation: Explanation) -> Iterator[tuple[str, str]]:
    """Return priority, tasks ahead, deadline and start; for a running task only the priority."""
    yield "effective priority", text.priority_level(explanation.effective_priority)
    if explanation.status is Status.RUNNING:
        return
    yield "tasks ahead", f"{explanation.ahead:,}"
    yield "deadline", "none" if explanation.expires_at is None else text.local_time(explanation.expires_at)
    start = explanation.estimated_start
    unknown = "too late: it expires before" if explanation.misses_deadline else "not known"
    yield "estimated start", unknown if start is None else text.local_time(start)
