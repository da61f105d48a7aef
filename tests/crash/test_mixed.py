"""The mixed workload on one file, with processes that are killed or suspended at random: every guarantee holds.

Three nodes share the file: one dispatches, the others stand by. Four processes submit. The workload, the journals and
the audit are those of the cluster test.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from taskmill.store.sqlite.dispatch_lock import holder
from tests.cluster.crowd import Crowd
from tests.cluster.play import judge, play
from tests.crash.evidence import SEED, kept_when_it_fails, rounds_or

SECONDS = rounds_or(10)
"""Seconds for which faults happen: about one for each round of other tests."""


class FileCrowd(Crowd):
    """All processes that use one file."""

    nodes = 3
    slots = 12
    one_dispatches = True
    kinds = ("kill_dispatcher", "suspend", "kill_dispatcher", "kill")
    suspensions = (0.2, 1.0, 3.0)

    def kill_dispatcher(self) -> None:
        """Kill the node that dispatches: another one takes over."""
        process = holder(self.address)
        for one in self.alive():
            if str(one.process.pid) == process and not one.is_away:
                self._kill(one)

    def orphans(self) -> list[str]:
        """Return none: a file has no leases, and recovery finds orphans."""
        return []


@pytest.mark.timeout(240 + 4 * SECONDS)
def test_no_promise_is_broken_by_a_mixed_workload_under_kills(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with kept_when_it_fails(tmp_path, SEED) as journal:
        crowd = FileCrowd(str(tmp_path / "tasks.db"), journal.parent, SEED)
        try:
            played = play(crowd, SECONDS)
        finally:
            crowd.end()
        wrong, figures = judge(crowd, played, journal.parent / "rows.json")
        told = f"seed {SEED}, {SECONDS} s\n{figures}"
        assert not wrong, "\n".join([f"TASKMILL_CRASH_SEED={SEED}", *wrong[:20], told])
    with capsys.disabled():
        print(f"\n{told}")
