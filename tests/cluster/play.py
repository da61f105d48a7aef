"""One run of the mixed workload: a calm phase, then faults, then all work ends and is audited."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from tests.cluster.audit import Audit, share
from tests.cluster.crowd import Crowd
from tests.cluster.ground import keep_log, left, rows
from tests.cluster.node import scheduler_of
from tests.cluster.witnesses import Interval, Witnesses, hear, keep
from tests.cluster.work import plain, scarce
from tests.crash.journal import boot_time

CALM = 4.0
"""Seconds of the calm phase, in which two groups want all slots."""
LONGEST_STANDSTILL = 60.0
"""Seconds within which at least one task must end, as long as any is left."""


@dataclass
class Played:
    """The violations that the run itself found, and the times that the audit needs."""

    since: float = 0.0
    until: float = 0.0
    resumed_at: float = 0.0
    wrong: list[str] = field(default_factory=list)


def play(crowd: Crowd, seconds: float) -> Played:
    """Run the whole workload on the store of a crowd, with faults for some seconds."""
    played = Played()
    asyncio.run(_prepare(crowd))
    crowd.start_all()
    played.since = boot_time()
    time.sleep(CALM + 1)
    asyncio.run(_let_go(crowd.address, seconds))
    crowd.start(pause=1.0)
    for _ in range(3):
        crowd.start(dispatches=False, pause=0.15)
    _strike(crowd, seconds)
    crowd.settle()
    crowd.enough()
    played.resumed_at = boot_time()
    asyncio.run(_end_pauses(crowd.address))
    played.wrong += _drain(crowd)
    asyncio.run(_last_words(crowd.address, 3 * crowd.slots * (crowd.nodes + 1)))
    played.wrong += _drain(crowd)
    played.wrong += crowd.orphans()
    played.until = boot_time()
    played.wrong += crowd.leave()
    return played


def judge(crowd: Crowd, played: Played, kept: Path) -> tuple[list[str], str]:
    """Return the violations and the figures of the run; if there are violations, write the evidence to ``kept``."""
    witnesses = hear(crowd)
    calm = [one for one in witnesses.intervals if one.marker.startswith(("heavy-", "light-"))]
    wrong = played.wrong + _wrong_shares(calm, crowd.slots_at_once)
    wrong += Audit(witnesses, crowd.faults, played.since, played.until, played.resumed_at).hold()
    at_work = {one.who for one in witnesses.intervals if one.marker.startswith("last-")}
    nodes = {one.who for one in crowd.alive() if one.who.startswith("node")}
    if len(nodes & at_work) < (1 if crowd.one_dispatches else len(nodes)):
        wrong.append(f"alive, but without work at the end: {nodes - at_work}")
    if wrong:
        keep(witnesses, crowd, kept)
    return wrong, _summary(witnesses, crowd)


async def _prepare(crowd: Crowd) -> None:
    """Create the tables, the log of claims, and more work for two groups than the calm phase can do."""
    async with scheduler_of(crowd.address) as scheduler:
        keep_log(crowd.address)
        slots = crowd.slots_at_once
        for group, count in (("heavy", 3.75 * slots * CALM), ("light", 1.6 * slots * CALM)):
            several = plain.options(group=group)
            await scheduler.submit_many([several.prepare(f"{group}-{n}", 0.3) for n in range(int(count))])


async def _let_go(address: str, seconds: float) -> None:
    """Give all groups the same weight, and the limited ones more work than their limits allow."""
    async with scheduler_of(address) as scheduler:
        await scheduler.group("heavy").set(weight=1)
        limited = {"capped": plain.options(group="capped"), "rated": plain.options(group="rated"), "scarce": scarce}
        for name, task in limited.items():
            await scheduler.submit_many([task.prepare(f"{name}-{n}", 0.2) for n in range(int(6 * seconds))])


async def _end_pauses(address: str) -> None:
    """Resume every group that a producer has left paused."""
    async with scheduler_of(address) as scheduler:
        for row in rows(address, {"control": "taskmill_control"})["control"]:
            if row["kind"] == "group" and row["paused_at"] is not None:
                await scheduler.group(row["name"]).resume()


async def _last_words(address: str, count: int) -> None:
    async with scheduler_of(address) as scheduler:
        await scheduler.submit_many([plain.prepare(f"last-{n}", 0.5) for n in range(count)])


def _strike(crowd: Crowd, seconds: float) -> None:
    """Cause every kind of fault, in random order."""
    until = time.monotonic() + seconds
    kinds = list(crowd.kinds)
    crowd.random.shuffle(kinds)
    number = 0
    while time.monotonic() < until:
        time.sleep(crowd.random.uniform(0.3, 2.0))
        crowd.strike(kinds[number % len(kinds)])
        number += 1


def _drain(crowd: Crowd) -> list[str]:
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


def _wrong_shares(intervals: list[Interval], slots: int) -> list[str]:
    """Return the groups that were more than a slot away from their share while both wanted more."""
    starts = {group: [one.begin for one in intervals if one.group == group] for group in ("heavy", "light")}
    calm_from = min(starts["heavy"] + starts["light"]) + 1.0
    calm_until = calm_from + CALM - 1.5
    if any(max(each) < calm_until for each in starts.values()):
        return ["the backlog was too short to tell anything about shares"]
    heavy, light = (share(intervals, calm_from, calm_until, group) for group in ("heavy", "light"))
    had = heavy / (heavy + light) * slots
    return [] if abs(had - slots * 0.75) <= 1 else [f"heavy had {had:.2f} of {slots} slots"]


def _summary(witnesses: Witnesses, crowd: Crowd) -> str:
    endings = Counter(row["ending"] for row in witnesses.history.values())
    faults = Counter(fault.what for fault in crowd.faults)
    pauses = sum(line["fact"] == "controlled" for line in witnesses.controls)
    return "\n".join(
        [
            f"{len(crowd.members)} processes, {len(witnesses.history)} tasks, {len(witnesses.intervals)} attempts,"
            f" {witnesses.facts['ack']} answers, {pauses} pauses and resumes, {witnesses.facts['in doubt']} in doubt,"
            f" {witnesses.facts['gap']} gaps",
            "endings: " + ", ".join(f"{ending} {n}" for ending, n in endings.most_common()),
            "faults: " + ", ".join(f"{what} {n}" for what, n in faults.most_common()),
        ]
    )
