"""A cluster under random load and random faults keeps every guarantee.

``TASKMILL_CRASH_SEED`` repeats the random choices, though not their timing; ``TASKMILL_CLUSTER_SECONDS`` is how long
faults happen.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.pace import hasten
from tests.cluster.play import judge, play
from tests.cluster.server_crowd import ServerCrowd
from tests.crash.evidence import SEED, kept_when_it_fails
from tests.postgres.keeper import Server

SECONDS = float(os.environ.get("TASKMILL_CLUSTER_SECONDS", "14"))


@pytest.fixture
def server() -> Iterator[Server]:
    """A server for this test alone, which does not log the faults of its clients."""
    server = Server({"log_min_messages": "panic"})
    yield server
    server.stop()


@pytest.fixture
def hastened(monkeypatch: pytest.MonkeyPatch) -> None:
    from taskmill.store.postgres import connection, heartbeat, lease, writer
    from taskmill.store.sql import cluster

    given = ((lease, "LEASE"), (heartbeat, "BEAT"), (heartbeat, "ANSWER"), (writer, "SERVER_PATIENCE"))
    for module, name in (*given, (cluster, "CLOCKS_APART_MS")):
        monkeypatch.setattr(module, name, getattr(module, name))
    for settings in (connection.WRITING, connection.CONNECTING):
        for name, value in list(settings.items()):
            monkeypatch.setitem(settings, name, value)
    hasten()


@pytest.mark.timeout(240 + 4 * SECONDS)
def test_no_promise_is_broken_by_a_cluster_under_fire(
    server: Server, tmp_path: Path, hastened: None, capsys: pytest.CaptureFixture[str]
) -> None:
    with kept_when_it_fails(tmp_path, SEED) as journal:
        crowd = ServerCrowd(server, journal.parent, SEED)
        try:
            played = play(crowd, SECONDS)
        finally:
            crowd.end()
        wrong, figures = judge(crowd, played, journal.parent / "rows.json")
        told = f"seed {SEED}, {SECONDS:.0f} s\n{figures}"
        assert not wrong, "\n".join([f"TASKMILL_CRASH_SEED={SEED}", *wrong[:20], told])
    with capsys.disabled():
        print(f"\n{told}")
