"""``taskmill doctor``: check a file or a PostgreSQL database, and how safely it is kept.

A *problem* means that data may be lost or that tasks cannot run; it gives exit code 1. A *note* is only worth knowing.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from taskmill import Ending, Scheduler, Status, StoreCorrupt
from taskmill.cli import output, tables, text
from taskmill.cli.checks import Finding, disk_facts, judge_disk, judge_machine, machine_facts
from taskmill.cli.output import DONE, REFUSED
from taskmill.cli.store_file import add_file, chosen_file, looking, shown
from taskmill.reading import Reader

MEMORY = ":memory:"

# A file
FIXED_SQLITE = (3, 51, 3)
LARGE_LOG = 64 * 1024 * 1024
MOST_NAMED = 10

# A server
MANY_DEAD = 10_000
"""A table with fewer dead rows is fine, however few live rows it has."""
LONG_TRANSACTION = 600
LONG_PREPARED = 300
MUCH_LOG = 1_000_000_000
LARGE_INDEX = 16_000_000
BYTES_PER_ENTRY = 500
"""An index with more bytes per row of its table is bloated."""
CLOCKS_DIFFER = 2.0
CLOCKS_APART = 60.0
"""A difference of clocks, in seconds, from which rate limits and delays are wrong."""

Facts = Mapping[str, Any]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_file(parser)
    parser.add_argument("--report", action="store_true", help="print a block to paste into a bug report")


def execute(arguments: argparse.Namespace) -> int:
    file = chosen_file(arguments.file)
    machine = machine_facts()
    findings = list(judge_machine(machine))
    facts: dict[str, Any] = {"store": shown(file), **machine}
    try:
        found, dead = asyncio.run(_look(file))
        facts |= found
        findings += judge(facts, dead)
    except StoreCorrupt as wrong:
        findings.append(Finding("problem", "integrity", str(wrong)))
    problems = sum(finding.level == "problem" for finding in findings)
    if arguments.json:
        output.print_json({"healthy": not problems, "findings": findings, "facts": facts})
    elif arguments.report:
        _print_report(file, facts, findings)
    else:
        tables.table(
            ["", "checked", "found"],
            [[finding.level, finding.subject, finding.text] for finding in findings],
            wrap=frozenset({"found"}),
        )
    return REFUSED if problems else DONE


def _print_report(file: str, facts: Facts, findings: Sequence[Finding]) -> None:
    """Print the findings in Markdown, without names of the store, of machines and of users."""
    secrets = dict.fromkeys((facts["store"], shown(file), str(Path(file).absolute()), file), "STORE")
    secrets |= {name: "NODE" for kind in ("alive", "dead") for name in facts.get("nodes", {}).get(kind, ())}
    if (oldest := facts.get("oldest_transaction")) is not None:
        secrets |= {f"{oldest['application']}, {oldest['user']}": "USER"}
    output.say("```text")
    for finding in findings:
        said = finding.text
        for secret, word in secrets.items():
            said = said.replace(secret, word)
        output.say(f"{finding.level:<8} {finding.subject}: {said}")
    output.say("```")


async def _look(file: str) -> tuple[Facts, int]:
    async with looking(file) as reader:
        return await examine(reader, integrity=True)


async def examine(queue: Reader | Scheduler, *, integrity: bool) -> tuple[Facts, int]:
    """Return the facts of a store and the number of its dead letters."""
    facts: dict[str, Any] = {**await queue.facts(integrity=integrity)}
    facts["running"] = await queue.count(status=Status.RUNNING)
    if facts["kind"] == "sqlite" and facts["store"] != MEMORY:
        facts |= disk_facts(facts["store"])
    return facts, await queue.count(status=Ending.DEAD_LETTER)


def judge(facts: Facts, dead: int) -> Iterator[Finding]:
    """Judge the facts of a store; without ``integrity`` among them, its pages and rows are not judged."""
    yield Finding(
        "ok",
        "file" if facts["kind"] == "sqlite" else "database",
        f"{facts['store']}, {text.size(facts['bytes'])}, schema {facts['schema']}",
    )
    if facts["kind"] == "sqlite":
        if "integrity" in facts:
            yield _integrity(facts["integrity"])
            yield _rows(facts["damaged"])
        yield _sqlite(facts["sqlite_version"], facts["module"])
        yield _log(facts["wal_bytes"])
        yield _dispatcher(facts["dispatcher"], facts["running"])
        if (file := facts["store"]) != MEMORY:
            yield from judge_disk(file, facts)
            if os.name == "posix":
                yield _permissions(file)
    else:
        yield from judge_server(facts)
    yield _dead_letters(dead)


def _dead_letters(count: int) -> Finding:
    if not count:
        return Finding("ok", "dead letters", "none")
    return Finding(
        "note",
        "dead letters",
        f"{text.plural(count, 'task')}; `taskmill errors` shows why, `taskmill retry` returns them to the queue",
    )


# A file


def _integrity(answer: str) -> Finding:
    if answer == "ok":
        return Finding("ok", "integrity", "no page is damaged")
    return Finding(
        "problem",
        "integrity",
        f"{text.first_line(answer)}; restore a backup or rescue the rows with the `sqlite3` shell's .recover",
    )


def _rows(damaged: Sequence[str]) -> Finding:
    if not damaged:
        return Finding("ok", "rows", "every row can be read")
    more = f"; and {len(damaged) - MOST_NAMED} more" if len(damaged) > MOST_NAMED else ""
    return Finding(
        "problem",
        "rows",
        f"{'; '.join(damaged[:MOST_NAMED])}{more}."
        " A dispatcher moves damaged tasks to the dead letters when it reads them",
    )


def _sqlite(version: str, module: str) -> Finding:
    if tuple(map(int, version.split("."))) >= FIXED_SQLITE:
        return Finding("ok", "SQLite", f"{version} from {module}")
    return Finding(
        "note",
        "SQLite",
        f"{version} from {module}: versions before 3.51.3 have a rare race between a checkpoint and a commit;"
        " taskmill works around it, and pip install 'taskmill[sqlite]' installs a newer version",
    )


def _log(size: int) -> Finding:
    if size <= LARGE_LOG:
        return Finding("ok", "write-ahead log", text.size(size))
    return Finding(
        "note", "write-ahead log", f"{text.size(size)} is large; a long read transaction may keep it from shrinking"
    )


def _dispatcher(process: str | None, running: int) -> Finding:
    if process is not None:
        return Finding("ok", "dispatcher", f"process {process}")
    if not running:
        return Finding("ok", "dispatcher", "none: nothing runs tasks now")
    return Finding(
        "note",
        "dispatcher",
        f"none, and a process that is gone left {text.plural(running, 'task')}; start a scheduler, which reruns them",
    )


def _permissions(file: str) -> Finding:
    mode = stat.S_IMODE(Path(file).stat().st_mode)
    if not mode & 0o077:
        return Finding("ok", "permissions", f"{mode:04o}: only its owner may open it")
    return Finding("note", "permissions", f"{mode:04o}: other users may open it and read payloads; chmod 600 {file}")


# A PostgreSQL server


def judge_server(facts: Facts) -> Iterator[Finding]:
    """Judge a PostgreSQL server and the tables of taskmill on it."""
    yield _server(facts)
    yield from _nodes(facts["nodes"])
    yield _clock(facts["clock_ahead"])
    yield _sizes(facts["tables"])
    yield from _dead_rows(facts["tables"])
    yield from _indexes(facts["indexes"], facts["tables"])
    yield _blocked(facts["blocked"])
    yield _oldest_transaction(facts)
    yield from _prepared(facts["prepared_transactions"])
    yield from _slots(facts["replication_slots"])
    yield _connections(facts["connections"], facts["max_connections"])


def _server(facts: Facts) -> Finding:
    found = f"{facts['server_version']}, encoding {facts['encoding']}"
    if facts["encoding"] == "UTF8":
        return Finding("ok", "PostgreSQL", found)
    return Finding("problem", "PostgreSQL", f"{found} cannot store every text; move the queue to a database in UTF8")


def _nodes(nodes: Facts) -> Iterator[Finding]:
    alive, dead, without = nodes["alive"], nodes["dead"], nodes["without_node"]
    if dead:
        cure = "other nodes return its tasks within seconds" if alive else "start a node, which returns its tasks"
        yield Finding("note", "nodes", f"{', '.join(dead)} died; {cure}. Alive: {', '.join(alive) or 'none'}")
    else:
        yield Finding(
            "ok", "nodes", f"{len(alive):,} alive: {', '.join(alive)}" if alive else "none: nothing runs tasks"
        )
    if without:
        cure = "a live node returns them within about ten seconds" if alive else "start a node, which returns them"
        yield Finding(
            "problem", "lost tasks", f"{text.plural(without, 'task')} marked as running without a node; {cure}"
        )


def _clock(ahead: float) -> Finding:
    apart = text.duration(abs(ahead))
    if abs(ahead) < CLOCKS_DIFFER:
        return Finding("ok", "clocks", f"{apart} apart")
    return Finding(
        "problem" if abs(ahead) > CLOCKS_APART else "note",
        "clocks",
        f"the server's clock is {apart} {'ahead of' if ahead > 0 else 'behind'} this machine's;"
        " delays, deadlines and rates use the clocks of nodes: synchronize them with NTP",
    )


def _sizes(tables: list[Facts]) -> Finding:
    ranked = sorted(tables, key=lambda table: -(table["bytes"] + table["index_bytes"]))
    sizes = [f"{table['name']} {text.size(table['bytes'])} + {text.size(table['index_bytes'])}" for table in ranked[:3]]
    return Finding("ok", "sizes", f"{', '.join(sizes)} of indexes")


def _dead_rows(tables: list[Facts]) -> Iterator[Finding]:
    total = sum(table["dead"] for table in tables)
    bad = [table for table in tables if table["dead"] > max(MANY_DEAD, table["live"])]
    for table in bad:
        yield Finding(
            "note",
            "dead rows",
            f"{table['name']} has {table['dead']:,} beside {table['live']:,} live ones,"
            f" last vacuumed: {_vacuumed(table)}; look for an old transaction or slot below,"
            f" then VACUUM {table['name']}",
        )
    if not bad:
        queue = next(table for table in tables if table["name"] == "taskmill_task")
        yield Finding("ok", "dead rows", f"{total:,}; the queue was last vacuumed: {_vacuumed(queue)}")


def _vacuumed(table: Facts) -> str:
    at = table["last_vacuum"]
    return "never so far" if at is None else text.ago(datetime.fromisoformat(at).astimezone(UTC))


def _indexes(indexes: list[Facts], tables: list[Facts]) -> Iterator[Finding]:
    rows = {table["name"]: table["live"] for table in tables}
    invalid = [index for index in indexes if not index["is_valid"]]
    bloated = [
        index
        for index in indexes
        if index["bytes"] > max(LARGE_INDEX, BYTES_PER_ENTRY * rows[index["table"]]) and index["is_valid"]
    ]
    for index in invalid:
        yield Finding(
            "problem", "indexes", f"{index['name']} is invalid and not used; REINDEX INDEX CONCURRENTLY {index['name']}"
        )
    for index in bloated:
        yield Finding(
            "note",
            "indexes",
            f"{index['name']} has {text.size(index['bytes'])} for {rows[index['table']]:,} rows;"
            f" REINDEX INDEX CONCURRENTLY {index['name']}",
        )
    if not invalid and not bloated:
        yield Finding("ok", "indexes", f"{len(indexes):,}, all valid, none bloated")


def _blocked(blocked: Facts) -> Finding:
    if not blocked["waiting"]:
        return Finding("ok", "writing", "no session has waited long for the write lock")
    return Finding(
        "problem",
        "writing",
        f"{text.plural(blocked['waiting'], 'session')} stuck behind process {', '.join(map(str, blocked['behind']))};"
        " commit there, or end it with pg_terminate_backend",
    )


def _oldest_transaction(facts: Facts) -> Finding:
    oldest = facts["oldest_transaction"]
    hidden = "" if facts["sees_all_sessions"] else "; those of other users are hidden: GRANT pg_read_all_stats"
    if oldest is None:
        return Finding("ok", "oldest transaction", f"none is open{hidden}")
    owner = f"process {oldest['pid']} ({oldest['application'] or 'unnamed'}, {oldest['user']}, {oldest['state']})"
    found = f"{text.duration(oldest['seconds'])} old, of {owner}"
    if oldest["seconds"] < LONG_TRANSACTION:
        return Finding("ok", "oldest transaction", found + hidden)
    return Finding(
        "note",
        "oldest transaction",
        f"{found}: dead rows stay until it ends; end it, if necessary with pg_terminate_backend({oldest['pid']})",
    )


def _prepared(prepared: list[Facts]) -> Iterator[Finding]:
    for one in prepared:
        if one["seconds"] > LONG_PREPARED:
            yield Finding(
                "note",
                "prepared transaction",
                f"{one['gid']} has waited for {text.duration(one['seconds'])} and holds its locks and dead rows;"
                f" COMMIT PREPARED or ROLLBACK PREPARED '{one['gid']}'",
            )


def _slots(slots: list[Facts]) -> Iterator[Finding]:
    for slot in slots:
        if (slot["bytes"] or 0) > MUCH_LOG and not slot["active"]:
            yield Finding(
                "note",
                "replication slot",
                f"{slot['name']} is unused and keeps {text.size(slot['bytes'])} of log on the server's disk;"
                f" connect its replica, or SELECT pg_drop_replication_slot('{slot['name']}')",
            )


def _connections(used: int, limit: int) -> Finding:
    found = f"{used:,} of {limit:,} used; a scheduler uses three"
    if used < 0.9 * limit:
        return Finding("ok", "connections", found)
    return Finding(
        "note", "connections", f"{found}: new ones will soon be refused; raise max_connections or use a pooler"
    )
