"""``taskmill pause`` and ``taskmill resume``: stop new starts, of everything or of one domain, and allow them again.

``taskmill groups`` pauses a group.
"""

from __future__ import annotations

import argparse
import asyncio

from taskmill import Snapshot
from taskmill.cli import output, text
from taskmill.cli.output import DONE
from taskmill.cli.store_file import add_file, chosen_file, opened


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_file(parser)
    parser.add_argument("--domain", metavar="NAME", help="only the tasks of this domain")


def execute(arguments: argparse.Namespace) -> int:
    file, domain = chosen_file(arguments.file), arguments.domain
    what = "the scheduler" if domain is None else f"domain {domain}"
    if arguments.command == "pause":
        document, sentence = _paused(what, domain, asyncio.run(_pause(file, domain)))
    else:
        document, sentence = _resumed(what, domain, *asyncio.run(_resume(file, domain)))
    if arguments.json:
        output.print_json(document)
    else:
        output.say(sentence)
    return DONE


def _paused(what: str, domain: str | None, snapshot: Snapshot) -> tuple[dict[str, object], str]:
    running = sum(domain is None or record.domain == domain for record in snapshot.running)
    finishing = f"; {text.plural(running, 'running task')} may finish" if running else ""
    return {"paused": True, "domain": domain}, f"{what} is paused until it is resumed{finishing}"


def _resumed(what: str, domain: str | None, was_paused: bool, snapshot: Snapshot) -> tuple[dict[str, object], str]:
    sentence = f"{what} {'is resumed' if was_paused else 'was not paused'}"
    if still := text.paused(snapshot):
        sentence += f"; still paused: {still}"
    return {"paused": False, "domain": domain, "was_paused": was_paused}, sentence


async def _pause(file: str, domain: str | None) -> Snapshot:
    async with opened(file) as scheduler:
        await (scheduler.pause() if domain is None else scheduler.domain(domain).pause())
        return await scheduler.snapshot()


async def _resume(file: str, domain: str | None) -> tuple[bool, Snapshot]:
    async with opened(file) as scheduler:
        before = await scheduler.snapshot()
        await (scheduler.resume() if domain is None else scheduler.domain(domain).resume())
        return before.paused if domain is None else domain in before.paused_domains, await scheduler.snapshot()
