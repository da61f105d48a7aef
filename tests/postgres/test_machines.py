"""Each node stores the readings of its machine, and readers see those of all live nodes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import psycopg
import pytest

from taskmill import Domain, Priority, Scheduler, Submission, ThrottlePolicy
from taskmill.model.machine import Capacity, Machine
from taskmill.store.postgres import lease
from taskmill.store.postgres.store import PostgresStore
from tests.runtime.backpressure.machine import PlayedMachine

LONG = 30.0


def _domain() -> Domain:
    domain = Domain("d")

    @domain.task
    async def work() -> None:
        return

    return domain


def _node(address: str, machine: PlayedMachine | None = None) -> Scheduler:
    if machine is None:
        return Scheduler(address, domains=[_domain()])
    return Scheduler(
        address, domains=[_domain()], pressure=machine.sources(), throttle=ThrottlePolicy([(Priority.NORMAL, 0.5)])
    )


async def _comes_true(what: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(LONG):
        while not await what():
            await asyncio.sleep(0.05)


async def _reasons(scheduler: Scheduler, id: int) -> list[str]:
    return [hold.reason for hold in (await scheduler.explain(id)).holds]


async def test_a_task_waits_for_the_pressure_only_while_it_is_high_on_every_node(postgres_store: str) -> None:
    one, two = PlayedMachine(), PlayedMachine()
    one.pressures["cpu"], two.pressures["cpu"] = 0.9, 0.8
    async with Scheduler(postgres_store) as asking, _node(postgres_store, one) as first, first.running():
        held = await asking.submit(Submission("d::work", {}))

        async def is_held() -> bool:
            return "pressure" in await _reasons(asking, held.id)

        await _comes_true(is_held)
        async with _node(postgres_store, two) as second, second.running():
            store = asking._store
            assert isinstance(store, PostgresStore)

            async def both_are_known() -> bool:
                return [each.machine.pressures for each in await store.machines()] == [{"cpu": 0.9}, {"cpu": 0.8}]

            await _comes_true(both_are_known)
            assert await is_held()
            assert (await asking.snapshot()).pressure == {"cpu": 0.9}
            assert (await second.snapshot()).pressure["cpu"] == 0.9, "the highest of all nodes"
            two.pressures["cpu"] = 0.0
            await held.result(timeout=LONG)
        # The readings of a node that has left do not count.
        assert [each.machine.pressures for each in await store.machines()] == [{"cpu": 0.9}]


async def test_a_node_that_does_not_watch_its_machine_holds_no_task(postgres_store: str) -> None:
    pressed = PlayedMachine()
    pressed.pressures["cpu"] = 0.9
    async with (
        Scheduler(postgres_store) as asking,
        _node(postgres_store, pressed) as first,
        first.running(),
        _node(postgres_store) as second,
        second.running(),
    ):
        handle = await asking.submit(Submission("d::work", {}))
        await handle.result(timeout=LONG)
        await second.pause()
        waiting = await asking.submit(Submission("d::work", {}))
        assert "pressure" not in await _reasons(asking, waiting.id)
        await second.resume()
        await waiting.result(timeout=LONG)


async def test_the_readings_of_a_dead_node_are_ignored(postgres_store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "LEASE", 5.0)
    pressed = PlayedMachine()
    pressed.pressures["cpu"] = 0.9
    async with Scheduler(postgres_store) as asking, _node(postgres_store, pressed) as node, node.running():
        with psycopg.connect(postgres_store, autocommit=True) as connection:
            connection.execute(
                "INSERT INTO taskmill_node (name, machine, seen_at)"
                " VALUES ('dead', '{\"pressures\":{\"cpu\":1.0}}', now() - interval '1 hour')"
            )

        async def the_living_are_known() -> bool:
            return (await asking.snapshot()).pressure == {"cpu": 0.9}

        await _comes_true(the_living_are_known)


async def test_the_learned_capacity_of_a_machine_is_kept_for_its_next_node(postgres_store: str) -> None:
    learned = Machine(known=Capacity(disk_write=5e6))
    async with _node(postgres_store, PlayedMachine()) as node:
        await node._store.note_machine(learned)
        async with node.running():
            assert [each.is_here for each in await node._store.machines()] == [True]
    async with _node(postgres_store) as again:
        remembered = await again._store.machine()
        assert remembered is not None
        assert remembered.known == learned.known
        assert list(await again._store.machines()) == []
