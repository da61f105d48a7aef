"""``taskmill pause``: stop new starts, of everything or of one domain. ``taskmill groups`` pauses a group."""

from __future__ import annotations

import argparse
import asyncio

from taskmill import Snapshot
from taskmill.cli import json_output, screen
from taskmill.cli.refusal import DONE
from taskmill.cli.store_file import add_file, chosen_file, opened
from taskmill.cli.text import plural

SUMMARY = "Stop new starts, of everything or of one domain; running tasks continue"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_file(parser)
    parser.add_argument("--domain", metavar="NAME", help="only the tasks of this domain")


def execute(arguments: argparse.Namespace) -> int:
    snapshot = asyncio.run(_pause(chosen_file(arguments.file), arguments.domain))
    if arguments.json:
        json_output.print_document({"paused": True, "domain": arguments.domain})
        return DONE
    domain: str | None = arguments.domain
    what = "the scheduler" if domain is None else f"domain {domain}"
    running = sum(domain is None or record.domain == domain for record in snapshot.running)
    finishing = f"; {plural(running, 'running task')} may finish" if running else ""
    screen.say(f"{what} is paused until it is resumed{finishing}")
    return DONE


async def _pause(file: str, domain: str | None) -> Snapshot:
    async with opened(file) as scheduler:
        if domain is None:
            await scheduler.pause()
        else:
            await scheduler.domain(domain).pause()
        return await scheduler.snapshot()
