"""``pg_two_nodes_vs_one``: what a second node adds where handlers wait 5 ms.

Nodes are processes with the default of 8 slots. The queue is full before they begin; the clock runs from the start of
the first handler to the end of the last, on any node.
"""

from __future__ import annotations

import asyncio
from functools import partial

from tests.postgres.keeper import Server

from benchmarks.measuring import Report, Settings, Target, interleaved, ratios, summary
from benchmarks.pg_node import Node, domain, pause
from benchmarks.pg_server import bench_server, new_database, settle
from taskmill import Scheduler

SLOTS = 8
LOOK = 0.05


def measure(settings: Settings) -> Report:
    report = Report()
    tasks = settings.tasks // 4
    with bench_server() as server:
        sides = {f"nodes_{n}": partial(_rate, server, tasks, n) for n in (1, 2, 3)}
        rates = interleaved(settings.rounds, sides)
    for name, found in rates.items():
        report.about[f"{name}_tasks_per_s"] = summary(found)
    report.add_ratio("pg_two_nodes_vs_one", rates["nodes_2"], rates["nodes_1"], Target(">=", 1.3))
    report.about["three_nodes_vs_one"] = summary(ratios(rates["nodes_3"], rates["nodes_1"]))
    report.about |= {"tasks": tasks, "slots_per_node": SLOTS}
    return report


def _rate(server: Server, tasks: int, count: int) -> float:
    address = new_database(server)

    async def work() -> float:
        async with Scheduler(address, domains=[domain]) as scheduler:
            await scheduler.submit_many([pause.prepare(i) for i in range(tasks)])
            nodes = [Node(address, SLOTS) for _ in range(count)]
            try:
                for node in nodes:
                    node.wait_until_ready()
                settle(server)
                for node in nodes:
                    node.begin()
                while await scheduler.count(status="completed") < tasks:
                    await asyncio.sleep(LOOK)
                moments = [node.end() for node in nodes]
            finally:
                for node in nodes:
                    node.kill()
        return max(last for _, last in moments) - min(first for first, _ in moments if first)

    return tasks / asyncio.run(work())
