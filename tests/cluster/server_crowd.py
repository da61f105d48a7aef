"""Processes that share a PostgreSQL server, and the faults of the server and of the network to it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import psycopg

from tests.cluster.crowd import Crowd
from tests.cluster.pace import LEASE
from tests.crash.journal import boot_time
from tests.postgres.keeper import Server
from tests.postgres.network import Network
from tests.postgres.server import address


class ServerCrowd(Crowd):
    """All processes that use one server."""

    nodes = slots = 4
    one_dispatches = False
    kinds = ("kill", "suspend", "fall_silent", "crash_server", "refuse", "end_sessions", "kill", "crash_backend")
    suspensions = (0.3 * LEASE, 1.3 * LEASE, 1.7 * LEASE)

    def __init__(self, server: Server, folder: Path, seed: int) -> None:
        super().__init__(address(server.folder), folder, seed)
        self._server = server

    def start_all(self) -> None:
        for number in range(self.nodes):
            self.start(through_network=number % 2 == 0)
        self.wait_until_open()

    def orphans(self) -> list[str]:
        """Return the running tasks whose node is gone, or was not seen for a lease."""
        query = b"""
            SELECT t.id, t.node_id, n.seen_at FROM taskmill_task AS t LEFT JOIN taskmill_node AS n ON n.id = t.node_id
            WHERE t.status = 'running' AND (n.id IS NULL OR n.seen_at < clock_timestamp() - make_interval(secs => %s))
        """
        with psycopg.connect(self.address) as connection:
            found = connection.execute(query, (LEASE,)).fetchall()
        return [f"task {id} runs on node {node}, seen at {seen}" for id, node, seen in found]

    def crash_server(self) -> None:
        fault = self._note("crash of the server", "all", boot_time())
        self._server.crash()
        time.sleep(self.random.choice((0.0, 1.0)))
        self._server.start()
        fault.until = boot_time()

    def crash_backend(self) -> None:
        """Kill one backend process of the server: all sessions end, and the server recovers."""
        fault = self._note("crash of a session", "all", boot_time())
        with psycopg.connect(self.address, autocommit=True) as connection:
            query = "SELECT pid FROM pg_stat_activity WHERE application_name = 'taskmill' ORDER BY pid"
            sessions = [pid for (pid,) in connection.execute(query)]
            if sessions:
                os.kill(self.random.choice(sessions), signal.SIGKILL)
        while True:
            try:
                psycopg.connect(self.address).close()
                break
            except psycopg.OperationalError:
                time.sleep(0.05)
        fault.until = boot_time()

    def end_sessions(self) -> None:
        fault = self._note("end of all sessions", "all", boot_time())
        with psycopg.connect(self.address, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'taskmill'"
            )
        fault.until = boot_time()

    def fall_silent(self) -> None:
        self._cut_off("silence", Network.fall_silent)

    def refuse(self) -> None:
        self._cut_off("refusal", Network.refuse)

    def _cut_off(self, what: str, how: Callable[[Network], None]) -> None:
        victims = [one for one in self._victims() if one.network is not None]
        if not victims:
            return
        victim = self.random.choice(victims)
        network = victim.network
        assert network is not None
        fault = self._note(what, victim.who, boot_time())
        how(network)

        def mend() -> None:
            network.speak()
            if self.random.random() < 0.5:
                network.cut()

        self._lasts(victim, fault, LEASE * self.random.choice((0.4, 1.2, 1.6)), mend)
