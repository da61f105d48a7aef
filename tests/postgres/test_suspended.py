"""A node that is suspended and later continues: its attempts are asked to stop, and all their writes are refused."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from taskmill import Scheduler, Submission
from taskmill.model.turn import Look, Turn
from taskmill.store.postgres import heartbeat, lease
from tests.postgres.test_nodes import OpenStore, open_node
from tests.store.contract.samples import NOW, add, claim, new_task

__all__ = ["open_node"]

LEASE = 5.0


async def _until(file: Path, seconds: float = 60.0) -> None:
    async with asyncio.timeout(seconds):
        while not file.exists():
            await asyncio.sleep(0.02)


def _row(address: str, id: int) -> tuple[object, ...] | None:
    with psycopg.connect(address) as connection:
        query = "SELECT status, attempt, saved, progress::json ->> 'message' FROM taskmill_task WHERE id = %s"
        return connection.execute(query, (id,)).fetchone()


class _Nodes:
    """Nodes in processes of their own, whose logs are in a folder."""

    def __init__(self, address: str, folder: Path) -> None:
        self._address = address
        self._folder = folder
        self._started: list[subprocess.Popen[bytes]] = []

    def start(self, name: str, *how: str) -> subprocess.Popen[bytes]:
        words = [sys.executable, "-m", "tests.postgres.suspended_node", self._address, str(LEASE), name, *how]
        with (self._folder / f"log of {name}").open("wb") as log:
            node = subprocess.Popen(words, stderr=log)
        self._started.append(node)
        return node

    async def has_logged(self, name: str, words: str) -> None:
        async with asyncio.timeout(30):
            while words.encode() not in (self._folder / f"log of {name}").read_bytes():
                await asyncio.sleep(0.02)

    def end(self) -> None:
        for node in self._started:
            node.kill()
            node.wait()


@pytest.fixture
def nodes(postgres_store: str, tmp_path: Path) -> Iterator[_Nodes]:
    nodes = _Nodes(postgres_store, tmp_path)
    yield nodes
    nodes.end()


async def _until_it_knows_its_types(scheduler: Scheduler, name: str) -> None:
    async with asyncio.timeout(60):
        while f"d::only {name}" not in await scheduler._store.published_types():
            await asyncio.sleep(0.02)


async def _works_again(scheduler: Scheduler) -> bool:
    """Return True if the first node runs tasks again, under a new id."""
    again = await scheduler.submit(Submission("d::only first", {}))
    return bool(await again.result(timeout=60) == "first")


@pytest.mark.timeout(150)
@pytest.mark.parametrize("where", ["on_the_loop", "in_a_thread"])
async def test_a_node_that_was_suspended_is_told_to_stop_and_writes_nothing(
    postgres_store: str, tmp_path: Path, nodes: _Nodes, where: str
) -> None:
    async with Scheduler(postgres_store) as scheduler:
        first = nodes.start("first")
        await _until_it_knows_its_types(scheduler, "first")
        handle = await scheduler.submit(Submission(f"d::{where}", {"folder": str(tmp_path)}))
        await _until(tmp_path / "begins.1")
        first.send_signal(signal.SIGSTOP)
        nodes.start("second")
        await _until(tmp_path / "begins.2")
        assert not (tmp_path / "told.1").exists()
        first.send_signal(signal.SIGCONT)
        await _until(tmp_path / "told.1")
        await _until(tmp_path / "refused.1")
        assert await _works_again(scheduler)
        await nodes.has_logged("first", "no longer holds its token")
        row = _row(postgres_store, handle.id)
        (tmp_path / "go").touch()
        result = await handle.result(timeout=60)
        history = await scheduler.history(type=f"d::{where}")
    assert row is not None
    assert row[:3] == ("running", 2, '{"by":"second"}')
    assert row[3] in (None, "second"), "progress is written now and then"
    assert result == "second"
    assert [record.id for record in history] == [handle.id]
    await nodes.has_logged("first", "cannot prove that it is alive")


@pytest.mark.timeout(150)
async def test_what_a_node_had_claimed_when_it_was_suspended_is_not_begun_there_later(
    postgres_store: str, tmp_path: Path, nodes: _Nodes
) -> None:
    async with Scheduler(postgres_store) as scheduler:
        first = nodes.start("first", "claiming")
        await _until_it_knows_its_types(scheduler, "first")
        handle = await scheduler.submit(Submission("d::in_a_thread", {"folder": str(tmp_path)}))
        os.waitid(os.P_PID, first.pid, os.WSTOPPED)
        nodes.start("second")
        await _until(tmp_path / "begins.2")
        first.send_signal(signal.SIGCONT)
        assert await _works_again(scheduler)
        (tmp_path / "go").touch()
        result = await handle.result(timeout=60)
        history = await scheduler.history(type="d::in_a_thread")
    assert result == "second"
    assert [record.attempt for record in history] == [2]
    assert not (tmp_path / "begins.1").exists()


# Worker processes continue while their node is suspended


@pytest.mark.timeout(150)
async def test_what_a_worker_process_returns_while_its_node_is_suspended_counts_for_nothing(
    postgres_store: str, tmp_path: Path, nodes: _Nodes
) -> None:
    async with Scheduler(postgres_store) as scheduler:
        first = nodes.start("first")
        await _until_it_knows_its_types(scheduler, "first")
        handle = await scheduler.submit(Submission("d::in_a_process", {"folder": str(tmp_path)}))
        await _until(tmp_path / "begins.1")
        first.send_signal(signal.SIGSTOP)
        nodes.start("second")
        await _until(tmp_path / "returns.1")
        first.send_signal(signal.SIGCONT)
        assert await _works_again(scheduler)
        await nodes.has_logged("first", "no longer holds its token")
        row = _row(postgres_store, handle.id)
        (tmp_path / "go").touch()
        result = await handle.result(timeout=60)
        history = await scheduler.history(type="d::in_a_process")
    assert row == ("running", 2, '{"by":"second"}', None)
    assert result == "second"
    assert [(record.id, record.attempt) for record in history] == [(handle.id, 2)]


@pytest.mark.timeout(150)
async def test_a_worker_process_of_a_node_that_was_suspended_saves_nothing_and_is_ended(
    postgres_store: str, tmp_path: Path, nodes: _Nodes
) -> None:
    async with Scheduler(postgres_store) as scheduler:
        first = nodes.start("first")
        await _until_it_knows_its_types(scheduler, "first")
        handle = await scheduler.submit(Submission("d::saves_in_a_process", {"folder": str(tmp_path)}))
        await _until(tmp_path / "begins.1")
        worker = Path("/proc") / (tmp_path / "process.1").read_text()
        first.send_signal(signal.SIGSTOP)
        nodes.start("second")
        await _until(tmp_path / "saves.1")
        was_at_work = worker.exists()
        first.send_signal(signal.SIGCONT)
        async with asyncio.timeout(30):
            while worker.exists():
                await asyncio.sleep(0.02)
        assert await _works_again(scheduler)
        await nodes.has_logged("first", "no longer holds its token")
        row = _row(postgres_store, handle.id)
        (tmp_path / "go").touch()
        result = await handle.result(timeout=60)
        history = await scheduler.history(type="d::saves_in_a_process")
    assert was_at_work
    assert row == ("running", 2, '{"by":"second"}', None)
    assert result == "second"
    assert [(record.id, record.attempt) for record in history] == [(handle.id, 2)]


async def test_a_node_that_was_taken_for_dead_and_works_again_leaves_when_it_stops(
    postgres_store: str, open_node: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nodes() -> list[int]:
        with psycopg.connect(postgres_store) as connection:
            return [id for (id,) in connection.execute("SELECT id FROM taskmill_node ORDER BY id")]

    other = await open_node()
    one = await open_node()
    right = await one.acquire_dispatch()
    (first,) = nodes()
    monkeypatch.setattr(lease, "LEASE", 0.0)
    await other.recover(NOW)
    monkeypatch.setattr(lease, "LEASE", 3600.0)
    async with asyncio.timeout(30):
        while nodes() in ([], [first]):
            await one.turn(Turn(now=NOW, look=Look(survey=True)))
            await asyncio.sleep(0.02)
        right.release()
        while nodes():
            await asyncio.sleep(0.02)


async def test_a_claim_that_is_given_back_late_takes_the_task_from_no_node(
    open_node: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeat, "BEAT", 3600.0)
    one, two = await open_node(), await open_node()
    rights = [await store.acquire_dispatch() for store in (one, two)]
    (id,) = await add(one, new_task())
    (old,) = await claim(one, id)
    monkeypatch.setattr(lease, "LEASE", 0.0)
    await two.recover(NOW)
    monkeypatch.setattr(lease, "LEASE", 3600.0)
    (new,) = await claim(two, id)
    await one.turn(Turn(now=NOW, returns=[old], at_work=[], look=Look(survey=True)))
    assert (await two.get(id)) is not None
    assert await two.save(id, new.attempt, "{}"), "it is still the second's"
    for right in rights:
        right.release()
