"""What ``taskmill doctor`` thinks of a server of PostgreSQL and of our tables on it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from taskmill.cli import words
from taskmill.cli.finding import Finding

MANY_DEAD = 10_000
"""Dead rows that are not worth a word, however few live ones there are."""
LONG_TRANSACTION = 600
LONG_PREPARED = 300
MUCH_LOG = 1_000_000_000
LARGE_INDEX = 16_000_000
BYTES_PER_ENTRY = 500
"""An index with so many for each row of its table is mostly empty space."""
CLOCKS_DIFFER = 2.0
CLOCKS_APART = 60.0
"""Rate limits and delays of nodes that differ by so much are no longer those that were asked for."""

Facts = Mapping[str, Any]


def judge(facts: Facts) -> Iterator[Finding]:
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
    text = f"{facts['server_version']}, encoding {facts['encoding']}"
    if facts["encoding"] == "UTF8":
        return Finding("ok", "PostgreSQL", text)
    return Finding("problem", "PostgreSQL", f"{text}: texts may not fit; move the queue to a database in UTF8")


def _nodes(nodes: Facts) -> Iterator[Finding]:
    alive, dead, without = nodes["alive"], nodes["dead"], nodes["without_node"]
    if dead:
        cure = "others return its tasks within seconds" if alive else "start a node, which returns its tasks"
        yield Finding("note", "nodes", f"{', '.join(dead)} died; {cure}. Alive: {', '.join(alive) or 'none'}")
    else:
        yield Finding(
            "ok", "nodes", f"{len(alive):,} alive: {', '.join(alive)}" if alive else "none: nothing runs tasks"
        )
    if without:
        yield Finding(
            "problem",
            "lost tasks",
            f"{words.plural(without, 'task')} marked as running under no node; the next node that starts returns them",
        )


def _clock(ahead: float) -> Finding:
    differ = (
        f"the server's clock is {words.duration(abs(ahead))} {'ahead of' if ahead > 0 else 'behind'} this machine's"
    )
    if abs(ahead) < CLOCKS_DIFFER:
        return Finding("ok", "clocks", f"{words.duration(abs(ahead))} apart")
    cure = "delays, deadlines and rates go by the clocks of nodes: keep them in step with NTP"
    return Finding("problem" if abs(ahead) > CLOCKS_APART else "note", "clocks", f"{differ}; {cure}")


def _sizes(tables: list[Facts]) -> Finding:
    ranked = sorted(tables, key=lambda table: -(table["bytes"] + table["index_bytes"]))
    told = [
        f"{table['name']} {words.size(table['bytes'])} + {words.size(table['index_bytes'])}" for table in ranked[:3]
    ]
    return Finding("ok", "sizes", f"{', '.join(told)} of indexes")


def _dead_rows(tables: list[Facts]) -> Iterator[Finding]:
    total = sum(table["dead"] for table in tables)
    bad = [table for table in tables if table["dead"] > max(MANY_DEAD, table["live"])]
    for table in bad:
        yield Finding(
            "note",
            "dead rows",
            f"{table['name']} has {table['dead']:,} beside {table['live']:,} live ones,"
            f" last cleaned up: {_cleaned(table)}; look for an old transaction or slot below,"
            f" then VACUUM {table['name']}",
        )
    if not bad:
        queue = next(table for table in tables if table["name"] == "taskmill_task")
        yield Finding("ok", "dead rows", f"{total:,}; the queue was last cleaned up: {_cleaned(queue)}")


def _cleaned(table: Facts) -> str:
    at = table["last_vacuum"]
    return "never so far" if at is None else words.ago(datetime.fromisoformat(at).astimezone(UTC))


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
            f"{index['name']} has {words.size(index['bytes'])} for {rows[index['table']]:,} rows;"
            f" REINDEX INDEX CONCURRENTLY {index['name']}",
        )
    if not invalid and not bloated:
        yield Finding("ok", "indexes", f"{len(indexes):,}, all valid, none larger than its table explains")


def _blocked(blocked: Facts) -> Finding:
    if not blocked["waiting"]:
        return Finding("ok", "writing", "nobody waits for long")
    return Finding(
        "problem",
        "writing",
        f"{words.plural(blocked['waiting'], 'session')} stuck behind process {', '.join(map(str, blocked['behind']))};"
        " commit there, or end it with pg_terminate_backend",
    )


def _oldest_transaction(facts: Facts) -> Finding:
    oldest = facts["oldest_transaction"]
    hidden = "" if facts["sees_all_sessions"] else "; those of other users are hidden: GRANT pg_read_all_stats"
    if oldest is None:
        return Finding("ok", "oldest transaction", f"none is open{hidden}")
    who = f"process {oldest['pid']} ({oldest['application'] or 'unnamed'}, {oldest['user']}, {oldest['state']})"
    text = f"{words.duration(oldest['seconds'])} old, of {who}"
    if oldest["seconds"] < LONG_TRANSACTION:
        return Finding("ok", "oldest transaction", text + hidden)
    return Finding(
        "note",
        "oldest transaction",
        f"{text}: no dead row is removed while it lasts; end it, if need be with pg_terminate_backend({oldest['pid']})",
    )


def _prepared(prepared: list[Facts]) -> Iterator[Finding]:
    for one in prepared:
        if one["seconds"] > LONG_PREPARED:
            yield Finding(
                "note",
                "prepared transaction",
                f"{one['gid']} has waited for {words.duration(one['seconds'])} and holds its locks and dead rows;"
                f" COMMIT PREPARED or ROLLBACK PREPARED '{one['gid']}'",
            )


def _slots(slots: list[Facts]) -> Iterator[Finding]:
    for slot in slots:
        if (slot["bytes"] or 0) > MUCH_LOG and not slot["active"]:
            yield Finding(
                "note",
                "replication slot",
                f"{slot['name']} is used by nobody and keeps {words.size(slot['bytes'])} of log on the server's disk;"
                f" connect its replica, or SELECT pg_drop_replication_slot('{slot['name']}')",
            )


def _connections(used: int, limit: int) -> Finding:
    text = f"{used:,} of {limit:,} used; a scheduler takes three"
    if used < 0.9 * limit:
        return Finding("ok", "connections", text)
    return Finding(
        "note", "connections", f"{text}: new ones are about to be refused; raise max_connections or use a pooler"
    )
