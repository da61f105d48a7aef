"""The metrics collector: what it requires, that it costs nothing if unused, and a scrape over HTTP."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.parser import text_string_to_metric_families

from taskmill import Aging, Domain, Group, Scheduler
from taskmill.metrics import Collector
from taskmill.pressure import Pressure
from tests.both_engines import Engine


def _python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=False)


@pytest.mark.one_engine("no store is opened")
def test_without_prometheus_client_the_import_says_what_to_install() -> None:
    done = _python("import sys; sys.modules['prometheus_client'] = None; import taskmill.metrics")
    assert done.returncode == 1
    assert 'ImportError: taskmill.metrics needs prometheus-client: pip install "taskmill[metrics]"' in done.stderr


@pytest.mark.one_engine("which modules are imported is what is tested")
def test_a_program_without_a_collector_loads_nothing_of_it() -> None:
    code = """
import asyncio, sys
from taskmill import Domain, Scheduler
domain = Domain("d")
@domain.task
async def work() -> None: ...
async def main():
    async with Scheduler(domains=[domain]) as scheduler:
        await work.submit()
        await scheduler.run_until_idle()
asyncio.run(main())
print([name for name in sys.modules if name.startswith(("prometheus_client", "taskmill.metrics"))
       or name in ("taskmill.observe.counters", "taskmill.runtime.gauges")])
"""
    done = _python(code)
    assert (done.stdout.strip(), done.returncode) == ("[]", 0), done.stderr


@pytest.mark.one_engine("no store is opened")
def test_two_collectors_in_one_registry_are_refused_at_once() -> None:
    registry = CollectorRegistry(auto_describe=True)
    registry.register(Collector(Scheduler()))
    with pytest.raises(ValueError, match="Duplicated timeseries"):
        registry.register(Collector(Scheduler()))


async def test_every_declared_metric_moves_in_what_prometheus_scrapes(tmp_path: Path, engine: Engine) -> None:
    domain = Domain("d")
    release = asyncio.Event()

    @domain.task
    async def work(n: int) -> None:
        await release.wait()

    scheduler = Scheduler(
        tmp_path / "tasks.db",
        domains=[domain],
        max_concurrency=4,
        groups={"a": Group(weight=3, cap=2), "b": Group()},
        aging=Aging(grace=0, interval=0.001, ceiling=64),
        pressure=[Pressure("test", lambda: 0.1)],
    )
    registry = CollectorRegistry(auto_describe=True)
    collector = Collector(scheduler)
    registry.register(collector)
    server, thread = start_http_server(0, addr="127.0.0.1", registry=registry)
    moved: set[str] = set()

    def scrape() -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/metrics", timeout=20) as answer:
            return str(answer.read().decode())

    async def look() -> None:
        for family in text_string_to_metric_families(await asyncio.to_thread(scrape)):
            moved.update(family.name for sample in family.samples if sample.value)

    try:
        async with scheduler, asyncio.timeout(50):
            await scheduler.group("idle").pause()
            await scheduler.submit_many([work.options(group=group).prepare(n) for n in range(9) for group in "ab"])
            async with scheduler.running():
                declared = {family.name for family in collector.describe()}
                if engine.is_postgres:
                    # A commit is durable there at once; there is no later sync to measure.
                    declared.remove("taskmill_store_sync_seconds")
                while not moved >= declared - {"taskmill_task_duration_seconds"}:
                    # Only tasks that begin to wait while the dispatcher runs are certain to be reported as aging.
                    await scheduler.submit(work.options(group="b").prepare(0))
                    await look()
                release.set()
                await scheduler.submit(work.prepare(0))
                while not moved >= declared:
                    await look()
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    assert moved == declared


async def test_a_scrape_over_http_shows_what_was_counted(tmp_path: Path) -> None:
    domain = Domain("d")

    @domain.task
    async def work(n: int) -> None:
        pass

    async with Scheduler(tmp_path / "tasks.db", domains=[domain]) as scheduler:
        registry = CollectorRegistry(auto_describe=True)
        registry.register(Collector(scheduler))
        await scheduler.submit_many([work.options(group='odd "\\\n name').prepare(n) for n in range(7)])
        await scheduler.run_until_idle()
        server, thread = start_http_server(0, addr="127.0.0.1", registry=registry)
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/metrics", timeout=20) as answer:
                text = answer.read().decode()
        finally:
            server.shutdown()
            server.server_close()
            thread.join()
    samples = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert samples["taskmill_events_total", "TaskCompleted"] == 7
    assert samples["taskmill_task_queue_wait_seconds_count", 'odd "\\\n name'] == 7
    assert samples["taskmill_task_duration_seconds_count", "completed", "d::work"] == 7
