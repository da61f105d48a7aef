"""``taskmill doctor``: is this file or database well, and is it safe where it lies?

A *problem* means data may be lost or work stands still, and gives exit code 1. A *note* is worth knowing, no more.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from taskmill import Ending, StoreCorrupt
from taskmill.cli import doctor_postgres, machine_output, screen, words
from taskmill.cli.finding import Finding
from taskmill.cli.refusal import DONE, REFUSED
from taskmill.cli.store_file import add_file, chosen_file, opened, shown

SUMMARY = "Check a store: integrity, versions, permissions, the health of a server, nodes, dead letters"

MENDED_SQLITE = (3, 51, 3)
LARGE_LOG = 64 * 1024 * 1024
MOST_NAMED = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_file(parser)


def execute(arguments: argparse.Namespace) -> int:
    file = chosen_file(arguments.file)
    try:
        facts, dead = asyncio.run(_examine(file))
        findings = list(_judge(file, facts, dead))
    except StoreCorrupt as wrong:
        facts, findings = {"store": shown(file)}, [Finding("problem", "integrity", str(wrong))]
    problems = sum(finding.level == "problem" for finding in findings)
    if arguments.json:
        machine_output.print_document({"healthy": not problems, "findings": findings, "facts": facts})
    else:
        screen.table(
            ["", "checked", "found"],
            [[finding.level, finding.subject, finding.text] for finding in findings],
            wrap=frozenset({"found"}),
        )
    return REFUSED if problems else DONE


async def _examine(file: str) -> tuple[Mapping[str, Any], int]:
    async with opened(file) as scheduler:
        return await scheduler.facts(integrity=True), await scheduler.count(status=Ending.DEAD_LETTER)


def _judge(file: str, facts: Mapping[str, Any], dead: int) -> Iterator[Finding]:
    yield Finding(
        "ok",
        "file" if facts["kind"] == "sqlite" else "database",
        f"{facts['store']}, {words.size(facts['bytes'])}, schema {facts['schema']}",
    )
    if facts["kind"] == "sqlite":
        yield _integrity(facts["integrity"])
        yield _rows(facts["damaged"])
        yield _sqlite(facts["sqlite_version"], facts["module"])
        yield _log(facts["wal_bytes"])
    else:
        yield from doctor_postgres.judge(facts)
    yield Finding(
        "ok", "durability", f"{facts['durability']} for what this command writes; each scheduler chooses its own"
    )
    if os.name == "posix" and Path(file).exists():
        yield _permissions(file)
    yield _dead_letters(dead)


def _integrity(answer: str) -> Finding:
    if answer == "ok":
        return Finding("ok", "integrity", "every page is sound")
    return Finding(
        "problem",
        "integrity",
        f"{words.first_line(answer)}; restore a backup or rescue the rows with the `sqlite3` shell's .recover",
    )


def _rows(damaged: Sequence[str]) -> Finding:
    if not damaged:
        return Finding("ok", "rows", "every row can be read")
    more = f"; and {len(damaged) - MOST_NAMED} more" if len(damaged) > MOST_NAMED else ""
    return Finding(
        "problem",
        "rows",
        f"{'; '.join(damaged[:MOST_NAMED])}{more}."
        " A dispatcher sets damaged tasks aside as dead letters when it meets them",
    )


def _sqlite(version: str, module: str) -> Finding:
    if tuple(map(int, version.split("."))) >= MENDED_SQLITE:
        return Finding("ok", "SQLite", f"{version} from {module}")
    return Finding(
        "note",
        "SQLite",
        f"{version} from {module}: versions before 3.51.3 have a rare race between a checkpoint and a commit;"
        " taskmill works around it, and pip install 'taskmill[sqlite]' brings a newer one",
    )


def _log(size: int) -> Finding:
    if size <= LARGE_LOG:
        return Finding("ok", "write-ahead log", words.size(size))
    return Finding(
        "note", "write-ahead log", f"{words.size(size)} is large; a reader may be holding an old state for long"
    )


def _permissions(file: str) -> Finding:
    mode = stat.S_IMODE(Path(file).stat().st_mode)
    if not mode & 0o077:
        return Finding("ok", "permissions", f"{mode:04o}, for its owner only")
    return Finding("note", "permissions", f"{mode:04o}: other users may open it, payloads included; chmod 600 {file}")


def _dead_letters(count: int) -> Finding:
    if not count:
        return Finding("ok", "dead letters", "none")
    return Finding(
        "note", "dead letters", f"{words.plural(count, 'task')} used up every retry; ls --status dead_letter lists them"
    )
