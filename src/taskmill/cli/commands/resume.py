"""``taskmill resume``: resume after ``taskmill pause``."""

from __future__ import annotations

import argparse
import asyncio

from taskmill import Snapshot
from taskmill.cli import json_output, screen, text
from taskmill.cli.refusal import DONE
from taskmill.cli.store_file import add_file, chosen_file, opened

SUMMARY = "Resume after pause"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_file(parser)
    parser.add_argument("--domain", metavar="NAME", help="only the tasks of this domain")


def execute(arguments: argparse.Namespace) -> int:
    was_paused, snapshot = asyncio.run(_resume(chosen_file(arguments.file), arguments.domain))
    if arguments.json:
        json_output.print_document({"paused": False, "domain": arguments.domain, "was_paused": was_paused})
        return DONE
    what = "the scheduler" if arguments.domain is None else f"domain {arguments.domain}"
    still = text.paused(snapshot)
    screen.say(
        f"{what} {'is resumed' if was_paused else 'was not paused'}" + (f"; still paused: {still}" if still else "")
    )
    return DONE


async def _resume(file: str, domain: str | None) -> tuple[bool, Snapshot]:
    async with opened(file) as scheduler:
        before = await scheduler.snapshot()
        if domain is None:
            await scheduler.resume()
        else:
            await scheduler.domain(domain).resume()
        return before.paused if domain is None else domain in before.paused_domains, await scheduler.snapshot()
