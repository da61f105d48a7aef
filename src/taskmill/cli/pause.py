"""``taskmill pause``: start nothing more, of everything or of one domain. Groups are paused by ``taskmill groups``."""

from __future__ import annotations

import argparse
import asyncio

from taskmill import Snapshot
from taskmill.cli import machine_output, screen
from taskmill.cli.refusal import DONE
from taskmill.cli.store_file import add_file, chosen_file, opened
from taskmill.cli.words import plural

SUMMARY = "Start nothing more, or nothing of one domain; what runs goes on"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_file(parser)
    parser.add_argument("--domain", metavar="NAME", help="only the tasks of this domain")


def execute(arguments: argparse.Namespace) -> int:
    picture = asyncio.run(_pause(chosen_file(arguments.file), arguments.domain))
    if arguments.json:
        machine_output.print_document({"paused": True, "domain": arguments.domain})
        return DONE
    domain: str | None = arguments.domain
    what = "the scheduler" if domain is None else f"domain {domain}"
    running = sum(domain is None or record.domain == domain for record in picture.running)
    goes_on = f"; {plural(running, 'running task')} may finish" if running else ""
    screen.say(f"{what} is paused until it is resumed{goes_on}")
    return DONE


async def _pause(file: str, domain: str | None) -> Snapshot:
    async with opened(file) as scheduler:
        if domain is None:
            await scheduler.pause()
        else:
            await scheduler.domain(domain).pause()
        return await scheduler.snapshot()
