"""The processes of a mixed workload, and the faults that can hit any of them: a kill, a suspension.

Faults of a server are in :mod:`tests.cluster.server_crowd`.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from tests.cluster.work import JOURNAL_PATH, JOURNAL_WHO
from tests.crash.journal import boot_time
from tests.postgres.network import Network
from tests.warm_python import Popen

ROOT = Path(__file__).parents[2]
MOST_AWAY = 2
"""The most nodes that are suspended or cut off at the same time."""


@dataclass(eq=False)
class Member:
    """One process."""

    who: str
    process: subprocess.Popen[bytes]
    journal: Path
    log: Path
    network: Network | None = None
    is_away: bool = False
    died_at: float | None = None
    stops: list[tuple[float, float]] = field(default_factory=list)
    """The intervals in which it was suspended."""


@dataclass
class Fault:
    """A fault and its interval; the audit excuses its consequences."""

    what: str
    target: str
    since: float
    until: float = float("inf")


class Crowd:
    """All processes that use one store."""

    nodes: int
    """The number of processes that dispatch or stand by."""
    slots: int
    """Slots of each node."""
    one_dispatches: bool
    """True if the other nodes stand by."""
    kinds: tuple[str, ...]
    """The names of the methods that cause faults; a name that is listed twice is chosen twice as often."""
    suspensions: tuple[float, ...]
    """The possible durations of a suspension, in seconds."""

    def __init__(self, address: str, folder: Path, seed: int) -> None:
        self.address = address
        self.members: list[Member] = []
        self.faults: list[Fault] = []
        self.random = random.Random(seed)
        self.failure: BaseException | None = None
        self._folder = folder
        self._numbers = itertools.count(1)
        self._enough = folder / "enough"
        self._lasting: list[threading.Thread] = []
        self._logs: list[IO[bytes]] = []

    # Processes

    def start(self, *, dispatches: bool = True, pause: float = 0.0, through_network: bool = False) -> Member:
        """Start a process; ``pause`` is the average number of seconds between its submissions, 0 for none."""
        who = f"{'node' if dispatches else 'producer'}{next(self._numbers)}"
        network = Network(self.address, tells_of_resets=True) if through_network else None
        journal, log = self._folder / f"{who}.journal", self._folder / f"{who}.log"
        orders = {
            "address": self.address if network is None else network.address,
            "seed": self.random.randrange(10**9),
            "slots": self.slots if dispatches else 0,
            "pause": pause,
            "enough": str(self._enough),
        }
        output = log.open("wb")
        self._logs.append(output)
        process = Popen(
            [sys.executable, "-m", "tests.cluster.node", json.dumps(orders)],
            cwd=ROOT,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
                JOURNAL_PATH: str(journal),
                JOURNAL_WHO: who,
            },
            stdin=subprocess.PIPE,
            stderr=output,
        )
        member = Member(who, process, journal, log, network)
        self.members.append(member)
        return member

    def wait_until_open(self) -> None:
        """Wait until all processes have opened the store."""
        while not all(one.journal.exists() and b'"open"' in one.journal.read_bytes() for one in self.alive()):
            time.sleep(0.02)

    def alive(self) -> list[Member]:
        return [one for one in self.members if one.died_at is None]

    @property
    def slots_at_once(self) -> int:
        """Count the slots of all nodes that dispatch at the same time."""
        return self.slots if self.one_dispatches else self.nodes * self.slots

    def start_all(self) -> None:
        """Start every node, and wait until all of them have opened the store."""
        for _ in range(self.nodes):
            self.start()
        self.wait_until_open()

    def _victims(self) -> list[Member]:
        """Return the nodes that a fault may hit now; none if too many are away already."""
        if sum(one.is_away for one in self.alive()) >= MOST_AWAY:
            return []
        return [one for one in self.alive() if one.who.startswith("node") and not one.is_away]

    def enough(self) -> None:
        """Stop all submissions."""
        self._enough.touch()

    def leave(self) -> list[str]:
        """End all processes gracefully; return what went wrong."""
        for member in self.alive():
            assert member.process.stdin is not None
            member.process.stdin.close()
        wrong = []
        for member in self.alive():
            try:
                code: int | None = member.process.wait(30)
            except subprocess.TimeoutExpired:
                code = None
            if code != 0:
                wrong.append(f"{member.who} did not end gracefully: {code}\n{member.log.read_text()[-2000:]}")
        return wrong

    def end(self) -> None:
        """End all threads and processes, whatever has happened."""
        for thread in self._lasting:
            thread.join()
        for member in self.members:
            if member.process.poll() is None:
                member.process.kill()
            member.process.wait()
            if member.process.stdin is not None:
                member.process.stdin.close()
            if member.network is not None:
                member.network.__exit__(None, None, None)
        for log in self._logs:
            log.close()

    def orphans(self) -> list[str]:
        """Return the running tasks that no process runs."""
        raise NotImplementedError

    # Faults

    def strike(self, kind: str) -> None:
        """Cause a fault; one that lasts continues in a thread."""
        getattr(self, kind)()

    def settle(self) -> None:
        """Wait until all lasting faults are over."""
        for thread in self._lasting:
            thread.join()
        self._lasting.clear()
        self.wait_until_open()
        if self.failure is not None:
            raise self.failure

    def _note(self, what: str, target: str, since: float) -> Fault:
        fault = Fault(what, target, since)
        self.faults.append(fault)
        return fault

    def _lasts(self, member: Member, fault: Fault, seconds: float, ending: Callable[[], None]) -> None:
        member.is_away = True

        def last() -> None:
            try:
                time.sleep(seconds)
                ending()
            except BaseException as wrong:  # settle() raises it
                self.failure = wrong
            fault.until = boot_time()
            member.is_away = False

        thread = threading.Thread(target=last)
        self._lasting.append(thread)
        thread.start()

    def kill(self) -> None:
        victims = [one for one in self.alive() if one.who.startswith("node") and not one.is_away]
        if len(victims) < 2:
            return
        self._kill(self.random.choice(victims))

    def _kill(self, victim: Member) -> None:
        fault = self._note("kill", victim.who, boot_time())
        victim.died_at = boot_time()
        victim.process.kill()
        victim.process.wait()
        self.start(pause=1.0, through_network=victim.network is not None)
        fault.until = boot_time()

    def suspend(self) -> None:
        """Stop a node without its knowledge, for one of the :attr:`suspensions`."""
        if not (victims := self._victims()):
            return
        victim = self.random.choice(victims)
        fault = self._note("suspension", victim.who, boot_time())
        victim.process.send_signal(signal.SIGSTOP)

        def wake() -> None:
            # Recorded before it happens: what the process does from then on counts.
            victim.stops.append((fault.since, boot_time()))
            victim.process.send_signal(signal.SIGCONT)

        self._lasts(victim, fault, self.random.choice(self.suspensions), wake)
