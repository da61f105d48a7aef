"""A move includes every table and every column."""

from __future__ import annotations

import asyncio
from pathlib import Path

from taskmill import Scheduler
from taskmill.store.moving.tables import MAY_BE_THERE, OPEN, OWN_COLUMNS, ROWS, STAY, SUMS, moving
from taskmill.store.opening import open_endpoint
from tests.moving.everything import rows_of


async def _open(store: str | Path) -> None:
    async with Scheduler(store):
        return


def test_every_table_of_either_engine_moves_or_is_said_to_stay(tmp_path: Path, postgres_store: str) -> None:
    file = tmp_path / "tasks.db"
    asyncio.run(_open(file))
    asyncio.run(_open(postgres_store))
    here, there = open_endpoint(str(file), must_exist=True), open_endpoint(postgres_store, must_exist=True)
    try:
        shapes = here.shapes(), there.shapes()
        columns = {table.name: set(table.columns) for table in moving(*shapes, "both")}
    finally:
        here.close()
        there.close()
    names = set(columns)
    for shape in shapes:
        assert set(shape) - names - STAY == set()
        for name in names:
            assert set(shape[name].columns) - columns[name] <= set(OWN_COLUMNS.get(name, {}))
    # Every name in the list exists.
    assert set(shapes[0]) | set(shapes[1]) >= STAY | OPEN | MAY_BE_THERE | set(OWN_COLUMNS) | set(SUMS) | set(ROWS)
    assert names | {"taskmill_load"} == set(rows_of(file)) == set(rows_of(postgres_store))
