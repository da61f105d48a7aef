"""The page over each kind of store, with the dispatcher in this process and in another one."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator, Generator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from playwright.sync_api import Browser

from taskmill import Group, Scheduler
from taskmill.web import Dashboard
from tests.both_engines import Engine
from tests.warm_python import Popen
from tests.web.browser import Looker, Open, Site, launched
from tests.web.client import TOKEN, Api, over
from tests.web.service import scheduler_of, sync


class Served(NamedTuple):
    """A page, the API in front of it and the scheduler behind it, which dispatches unless another process does."""

    page: Dashboard
    api: Api
    scheduler: Scheduler


def page_of(scheduler: Scheduler, **settings: object) -> Dashboard:
    chosen: dict[str, object] = {
        "read_only": False,
        "authorize": None,
        "redact": None,
        "allowed_hosts": None,
        "token": TOKEN,
        **settings,
    }
    return Dashboard(scheduler, **chosen)  # type: ignore[arg-type]


PLACES = ["memory here", "file here", "file elsewhere", "postgres here", "postgres elsewhere"]


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest) -> str:
    """The kind of the store, and where the dispatcher runs."""
    return str(request.param)


@pytest.fixture
def store(place: str, engine: Engine, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    kind = place.split(maxsplit=1)[0]
    if kind == "postgres":
        return engine.borrow(request.getfixturevalue("schemas"))
    return ":memory:" if kind == "memory" else str(tmp_path / "tasks.db")


@pytest.fixture
async def served(place: str, store: str) -> AsyncIterator[Served]:
    if place.endswith("here"):
        async with scheduler_of(store) as scheduler, scheduler.running():
            page = page_of(scheduler)
            async with over(page) as client:
                yield Served(page, Api(client), scheduler)
        return
    with Popen([sys.executable, "-m", "tests.web.service", store], stdout=subprocess.PIPE) as other:
        try:
            assert other.stdout is not None
            assert other.stdout.readline() == b"ready\n"
            async with Scheduler(store, retention=None) as scheduler:
                sync.bind(scheduler)
                page = page_of(scheduler)
                async with over(page) as client:
                    yield Served(page, Api(client), scheduler)
                sync.unbind(scheduler)
        finally:
            other.terminate()


@pytest.fixture
async def alone(tmp_path: Path) -> AsyncIterator[Served]:
    """A page over a file that no scheduler dispatches, for rules that do not depend on the store."""
    async with scheduler_of(str(tmp_path / "tasks.db")) as scheduler:
        page = page_of(scheduler)
        async with over(page) as client:
            yield Served(page, Api(client), scheduler)


# The page in a browser


@pytest.fixture(scope="module")
def browser() -> Generator[Browser]:
    """Start one browser for the module; while it is open, no other test of this process could run an event loop."""
    with launched() as found:
        yield found


@pytest.fixture
def look(browser: Browser) -> Generator[Open]:
    """Open tabs; at the end of the test, none of them may have seen an error or a foreign request."""
    opened: list[Looker] = []

    def look(**settings: Any) -> Looker:
        opened.append(Looker(browser, **settings))
        return opened[-1]

    yield look
    for one in opened:
        one.close()


@pytest.fixture
def site(tmp_path: Path) -> Generator[Site]:
    with Site(
        tmp_path / "tasks.db", max_concurrency=2, groups={"photos": Group(weight=3), "backup": Group(weight=1)}
    ) as running:
        yield running
