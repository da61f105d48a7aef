"""``taskmill why``: what one task waits for, with the numbers."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Iterator

from taskmill import Ending, Explanation, Status
from taskmill.cli import machine_output, screen, words
from taskmill.cli.refusal import DONE
from taskmill.cli.store_file import add_file_and_ids, chosen_file_and_id, opened

SUMMARY = "Say why a task waits, and when it may start"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_file_and_ids(parser, "one")


def execute(arguments: argparse.Namespace) -> int:
    file, id = chosen_file_and_id(arguments.file_and_ids, "why")
    explanation = asyncio.run(_explain(file, id))
    if arguments.json:
        machine_output.print_document(explanation)
    else:
        _print(explanation)
    return DONE


async def _explain(file: str, id: int) -> Explanation:
    async with opened(file) as scheduler:
        return await scheduler.explain(id)


def _print(explanation: Explanation) -> None:
    screen.paragraph(str(explanation))
    if explanation.holds:
        screen.say()
        rows = [[words.spoken(hold.reason), hold.detail] for hold in explanation.holds]
        screen.table(["held by", "because"], rows, wrap=frozenset({"because"}))
    if not isinstance(explanation.status, Ending):
        screen.say()
        screen.facts(_facts(explanation))


def _facts(explanation: Explanation) -> Iterator[tuple[str, str]]:
    """What can still change; a task that runs is past waiting."""
    yield "effective priority", words.priority_level(explanation.effective_priority)
    if explanation.status is Status.RUNNING:
        return
    yield "tasks ahead", f"{explanation.ahead:,}"
    yield "deadline", "none" if explanation.expires_at is None else words.local_time(explanation.expires_at)
    start = explanation.estimated_start
    yield "estimated start", "not known" if start is None else words.local_time(start)
