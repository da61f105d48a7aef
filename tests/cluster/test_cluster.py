"""A cluster under random load and random faults: whatever happens, no promise is broken.

``TASKMILL_CRASH_SEED`` makes the same choices again, if not at the same moments; ``TASKMILL_CLUSTER_SECONDS`` says for
how long faults happen.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.cluster.audit import Audit, share
from tests.cluster.crowd import KINDS, SLOTS, Crowd
from tests.cluster.node import scheduler_of
from tests.cluster.pace import LEASE, hasten
from tests.cluster.witnesses import LOG, Interval, Witnesses, hear, keep
from tests.cluster.work import plain, scarce
from tests.crash.evidence import SEED, kept_when_it_fails
from tests.crash.journal import boot_time
from tests.postgres.keeper import Server

SECONDS = float(os.environ.get("TASKMILL_CLUSTER_SECONDS", "14"))
NODES = 4
CALM = 4.0
"""Seconds for which two groups want all slots, and nothing else happens."""
LONGEST_STANDSTILL = 60.0
"""Seconds in which at least one task ends, as long as any is left."""


@pytest.fixture
def server() -> Iterator[Server]:
    """A server of the test's own, which says nothing about what befalls its clients."""
    server = Server({"log_min_messages": "panic"})
    yield server
    server.stop()


@pytest.fixture
def hastened(monkeypatch: pytest.MonkeyPatch) -> None:
    from taskmill.store.postgres import connection, lease, pulse, writer
    from taskmill.store.sql import cluster

    given = ((lease, "LEASE"), (pulse, "BEAT"), (pulse, "ANSWER"), (writer, "SERVER_PATIENCE"))
    for module, name in (*given, (cluster, "CLOCKS_APART_MS")):
        monkeypatch.setattr(module, name, getattr(module, name))
    for settings in (connection.WRITING, connection.CONNECTING):
        for name, value in list(settings.items()):
            monkeypatch.setitem(settings, name, value)
    hasten()


async def prepare(address: str) -> None:
    """The tables, a log of what happens to their rows, and work for two groups."""
    async with scheduler_of(address) as scheduler:
        with psycopg.connect(address, autocommit=True) as connection:
            connection.execute(LOG.encode())
        # More than can be done in that time.
        for group, count in (("heavy", 60 * CALM), ("light", 25 * CALM)):
            several = plain.options(group=group)
            await scheduler.submit_many([several.prepare(f"{group}-{n}", 0.3) for n in range(int(count))])


async def let_go(address: str) -> None:
    """From now on no group has more weight than others, and nodes claim beside each other where nothing is limited."""
    async with scheduler_of(address) as scheduler:
        await scheduler.group("heavy").set(weight=1)
        # What is limited has more to do than the limits allow, whatever happens.
        limited = {"capped": plain.options(group="capped"), "rated": plain.options(group="rated"), "scarce": scarce}
        for name, task in limited.items():
            await scheduler.submit_many([task.prepare(f"{name}-{n}", 0.2) for n in range(int(6 * SECONDS))])


async def last_words(address: str, count: int) -> None:
    async with scheduler_of(address) as scheduler:
        await scheduler.submit_many([plain.prepare(f"last-{n}", 0.5) for n in range(count)])


def left(address: str) -> int:
    with psycopg.connect(address) as connection:
        row = connection.execute("SELECT count(*) FROM taskmill_task WHERE cron IS NULL").fetchone()
        assert row is not None
        return int(row[0])


def drain(crowd: Crowd) -> list[str]:
    fewest, since = left(crowd.address), time.monotonic()
    while count := left(crowd.address):
        if count < fewest:
            fewest, since = count, time.monotonic()
        elif time.monotonic() > since + LONGEST_STANDSTILL:
            return [f"{count} tasks did not come to an end"]
        codes = [(one.who, one.process.poll()) for one in crowd.alive() if one.process.poll() is not None]
        if codes:
            return [f"ended by themselves: {codes}"]
        time.sleep(0.1)
    return []


def orphans(address: str) -> list[str]:
    """Running rows whose node is not there, or was not seen for a lease."""
    query = """
        SELECT t.id, t.node_id, n.seen_at FROM taskmill_task AS t LEFT JOIN taskmill_node AS n ON n.id = t.node_id
        WHERE t.status = 'running' AND (n.id IS NULL OR n.seen_at < clock_timestamp() - make_interval(secs => %s))
    """
    with psycopg.connect(address) as connection:
        return [
            f"task {id} runs on node {node}, seen at {seen}" for id, node, seen in connection.execute(query, (LEASE,))
        ]


def wrong_shares(intervals: list[Interval]) -> list[str]:
    """While both groups want more than there is, each is within a slot of its share."""
    starts = {group: [one.begin for one in intervals if one.group == group] for group in ("heavy", "light")}
    calm_from = min(starts["heavy"] + starts["light"]) + 1.0
    calm_until = calm_from + CALM - 1.5
    if any(max(each) < calm_until for each in starts.values()):
        return ["the backlog was too short to tell anything about shares"]
    heavy, light = (share(intervals, calm_from, calm_until, group) for group in ("heavy", "light"))
    slots = heavy / (heavy + light) * NODES * SLOTS
    return [] if abs(slots - NODES * SLOTS * 0.75) <= 1 else [f"heavy had {slots:.2f} of {NODES * SLOTS} slots"]


def summary(witnesses: Witnesses, crowd: Crowd) -> str:
    endings = Counter(row["ending"] for row in witnesses.history.values())
    faults = Counter(fault.what for fault in crowd.faults)
    return "\n".join(
        [
            f"{len(crowd.members)} processes, {len(witnesses.history)} tasks, {len(witnesses.intervals)} attempts,"
            f" {witnesses.facts['ack']} answers, {witnesses.facts['in doubt']} in doubt, {witnesses.facts['gap']} gaps",
            "endings: " + ", ".join(f"{ending} {n}" for ending, n in endings.most_common()),
            "faults: " + ", ".join(f"{what} {n}" for what, n in faults.most_common()),
        ]
    )


@pytest.mark.timeout(240 + 4 * SECONDS)
def test_no_promise_is_broken_by_a_cluster_under_fire(
    server: Server, tmp_path: Path, hastened: None, capsys: pytest.CaptureFixture[str]
) -> None:
    with kept_when_it_fails(tmp_path, SEED) as journal:
        crowd = Crowd(server, journal.parent, SEED)
        try:
            wrong, since, until = run(crowd)
        finally:
            crowd.end()
        witnesses = hear(crowd)
        wrong += wrong_shares([one for one in witnesses.intervals if one.marker.startswith(("heavy-", "light-"))])
        wrong += Audit(witnesses, crowd.faults, since, until).hold()
        wrong += idle_nodes(crowd, witnesses)
        if wrong:
            keep(witnesses, crowd, journal.parent / "rows.json")
        told = f"seed {SEED}, {SECONDS:.0f} s\n{summary(witnesses, crowd)}"
        assert not wrong, "\n".join([f"TASKMILL_CRASH_SEED={SEED}", *wrong[:20], told])
    with capsys.disabled():
        print(f"\n{told}")


def run(crowd: Crowd) -> tuple[list[str], float, float]:
    """What went wrong on the way, and from when to when cron tasks were to run."""
    asyncio.run(prepare(crowd.address))
    for number in range(NODES):
        crowd.start(through_network=number % 2 == 0)
    crowd.wait_until_open()
    since = boot_time()
    time.sleep(CALM + 1)
    asyncio.run(let_go(crowd.address))
    crowd.start(pause=1.0)
    for _ in range(3):
        crowd.start(slots=0, pause=0.15)
    fire(crowd)
    crowd.settle()
    crowd.enough()
    wrong = drain(crowd)
    asyncio.run(last_words(crowd.address, 3 * SLOTS * (NODES + 1)))
    wrong += drain(crowd)
    wrong += orphans(crowd.address)
    until = boot_time()
    return wrong + crowd.leave(), since, until


def fire(crowd: Crowd) -> None:
    """Let everything happen in its turn, from a place of chance on."""
    until = time.monotonic() + SECONDS
    kinds = list(KINDS)
    crowd.random.shuffle(kinds)
    turn = 0
    while time.monotonic() < until:
        time.sleep(crowd.random.uniform(0.3, 2.0))
        crowd.strike(kinds[turn % len(kinds)])
        turn += 1


def idle_nodes(crowd: Crowd, witnesses: Witnesses) -> list[str]:
    """Whoever lives has found back to work."""
    at_work = {one.who for one in witnesses.intervals if one.marker.startswith("last-")}
    return [
        f"{one.who} does nothing any longer" for one in crowd.alive() if "node" in one.who and one.who not in at_work
    ]
