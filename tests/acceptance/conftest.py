"""Fixtures of several files: a store with the domain of box.py, and one with tasks of every kind for the commands."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from taskmill import Context, Domain, GiveUp, Retry, Scheduler
from tests.acceptance.box import box, put
from tests.acceptance.command_line import Here
from tests.both_engines import Engine
from tests.postgres.schemas import Schemas


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tasks.db"


@pytest.fixture
async def scheduler(path: Path) -> AsyncIterator[Scheduler]:
    async with Scheduler(path, domains=[box], durability="process") as opened:
        await put.options(key="held").submit("already here")
        yield opened


# The command line


@pytest.fixture
def here(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Here:
    monkeypatch.delenv("TASKMILL_STORE", raising=False)
    return Here(capsys, monkeypatch)


async def _fill(store: Path | str) -> None:
    sync = Domain("sync", group="s3://prod")

    @sync.task(tags={"user": "ann"})
    async def send(ctx: Context, path: str) -> dict[str, int]:
        ctx.progress.bytes(1000)
        ctx.progress.advance(1000, "all sent")
        return {"size": len(path)}

    @sync.task(retry=Retry.constant(1, delay=0))
    async def lose(path: str) -> None:
        raise GiveUp(f"{path} is gone")

    @sync.task(retry=Retry.constant(1, delay=0))
    async def break_down() -> None:
        raise ValueError("first line\nsecond line")

    async with Scheduler(store, domains=[sync]) as scheduler:
        await send.options(label="the first").submit("a.jpg")
        await lose.submit("b.jpg")
        await break_down.submit()
        await scheduler.run_until_idle()
        await send.options(key="c", priority=64, tags={"user": "bob"}).submit("c.jpg")
        await send.options(group=None, priority=100).submit("d.jpg")
        await send.options(run_after=3600, ttl=7200).submit("e.jpg")
        await send.options(label="\x1b[2J[bold]evil[/bold]").submit("f.jpg")


@pytest.fixture(scope="module")
def template_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("cli") / "tasks.db"
    asyncio.run(_fill(file))
    return file


@pytest.fixture(scope="module")
def template_schema(schemas: Schemas) -> Iterator[str]:
    schema = schemas.take()
    asyncio.run(_fill(schemas.address(schema)))
    yield schema
    schemas.give_back(schema)


@pytest.fixture
def file(engine: Engine, request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The path of a store with tasks of every kind; on PostgreSQL ``name_of`` turns it into an address."""
    copy = tmp_path / "tasks.db"
    if engine.is_postgres:
        engine.put(copy, request.getfixturevalue("template_schema"))
    else:
        copy.write_bytes(request.getfixturevalue("template_file").read_bytes())
        copy.chmod(0o600)
    return copy


@pytest.fixture
def template(file: Path) -> Path:
    """The same store, for tests that only read it."""
    return file
