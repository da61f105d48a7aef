"""``pg_explain_1m_ms`` and ``pg_snapshot_1m_ms``: answers about 1,000,000 waiting tasks on PostgreSQL.

The questions are those of :mod:`benchmarks.answers`, on a server of its own. Tasks are stored by the server itself.
"""

from __future__ import annotations

from benchmarks.answers import GROUPS, add_explanations, add_snapshots
from benchmarks.measuring import Report, Settings
from benchmarks.pg_backlog import deep_database
from benchmarks.pg_server import bench_server, settle


def measure(settings: Settings) -> Report:
    report = Report()
    with bench_server() as server:
        stores = {
            "1_group": deep_database(server, settings.backlog),
            f"{GROUPS}_groups": deep_database(server, settings.backlog, GROUPS),
        }
        settle(server)
        add_explanations(report, "pg_explain_1m_ms", stores, settings.backlog)
        add_snapshots(report, "pg_snapshot_1m_ms", stores)
    report.about |= {"waiting": settings.backlog, "groups": GROUPS}
    return report
