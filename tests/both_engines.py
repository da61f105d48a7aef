"""Every test of behaviour runs on both engines: once as it stands, and once with its stores on a PostgreSQL server.

On ``postgres`` every store that the test opens in this process is a schema on the server of the test run. Each
``:memory:`` gets a new schema. Each path gets one schema, which lasts until the test ends: a closed store can be opened
again. A test that passes the path of a store to another program or to the command line calls :func:`name_of` to
get the address of its schema.

A test that needs only one engine gives the reason: ``@pytest.mark.one_engine("the file is what is tested")``. A test
without that mark fails if it ends on ``postgres`` without having used the server: it would run the same code twice.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest

from taskmill.core.ports import Clock
from tests.postgres.schemas import PREFIX, Schemas
from tests.postgres.warm import kept_open

ROOMS = ("acceptance", "metrics", "runtime")
"""The folders whose tests run on both engines. Other tests need one engine, none, or the fixture ``any_store``."""

CHOSEN = frozenset({"any_store", "own_server", "postgres_server", "postgres_store"})
"""A test that uses one of these fixtures has chosen its engine itself."""

MEMORY = ":memory:"
TESTS = Path(__file__).parent


class Engine:
    """The engine that a test runs on, and the names of its stores there."""

    def __init__(self, schemas: Schemas | None) -> None:
        self._schemas = schemas
        self._places: dict[str, str] = {}
        self._taken: list[str] = []
        self._lent: list[tuple[Schemas, str]] = []
        self.was_used = schemas is None

    @property
    def is_postgres(self) -> bool:
        return self._schemas is not None

    def fewer(self, count: int) -> int:
        """Return how often to repeat something: a fifth of ``count`` on a server, where each step is a round trip."""
        return count if self._schemas is None else max(1, count // 5)

    def named(self, name: str | os.PathLike[str]) -> str:
        """Return the name that opens this store on the engine of the test, in any process."""
        name = os.fspath(name)
        if self._schemas is None or name.startswith(("postgres://", "postgresql://")):
            return name
        if name == MEMORY:
            return self._schemas.address(self._new())
        path = os.path.abspath(name)
        if path not in self._places:
            self._places[path] = self._new()
        return self._schemas.address(self._places[path])

    def put(self, path: str | Path, schema: str) -> None:
        """Copy a schema, and use the copy for this path."""
        assert self._schemas is not None
        self._places[os.path.abspath(path)] = copy = self._schemas.take_copy(schema)
        self._taken.append(copy)

    def put_as_killed(self, path: str | Path, left: str | Path) -> None:
        """Use for ``path`` a copy of the schema of ``left``, without its nodes, as if their processes were killed."""
        assert self._schemas is not None
        self.put(path, self._places[os.path.abspath(left)])
        self._schemas.forget_nodes(self._taken[-1])

    def _new(self) -> str:
        assert self._schemas is not None
        self._taken.append(self._schemas.take())
        return self._taken[-1]

    def borrow(self, schemas: Schemas) -> str:
        """Return the address of an empty schema for a test that has chosen PostgreSQL itself.

        The schema is returned after the other fixtures, which may have a scheduler open on it.
        """
        schema = schemas.take()
        self._lent.append((schemas, schema))
        return schemas.address(schema)

    def close(self) -> None:
        for schema in self._taken:
            assert self._schemas is not None
            self._schemas.give_back(schema)
        for schemas, schema in self._lent:
            schemas.give_back(schema)


def copied_as_killed(left: str | Path, copy: str | Path) -> bool:
    """Copy a store as a killed process would have left it; return False if it is a file, which the caller must copy."""
    if _current.is_postgres:
        _current.put_as_killed(copy, left)
    return _current.is_postgres


@pytest.fixture(scope="session")
def schemas(postgres_server: str) -> Iterator[Schemas]:
    with kept_open(lambda address: PREFIX in address) as warm:
        made = Schemas(postgres_server, warm)
        yield made
        made.close()


@functools.cache
def room_of(file: Path) -> str:
    """Return the name of the folder of ``tests`` in which a file is."""
    return file.relative_to(TESTS).parts[0]


_ENGINE = pytest.StashKey[Engine]()
_current = Engine(None)


def name_of(argument: object) -> str:
    """Return an argument of a command as text; the path of a database becomes its name on the engine of this test."""
    if not (isinstance(argument, Path) and argument.suffix == ".db"):
        return str(argument)
    _current.was_used = True
    return _current.named(argument)


@pytest.fixture(autouse=True)
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    """The engine that the test runs on. It is set up before any other fixture can open a store."""
    if getattr(request, "param", "sqlite") == "sqlite":
        chosen = Engine(None)
        yield chosen
        chosen.close()
        return
    found = Engine(request.getfixturevalue("schemas"))
    request.node.stash[_ENGINE] = found
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys.modules[__name__], "_current", found)
        _redirect(found, patch)
        yield found
    found.close()


def _redirect(engine: Engine, patch: pytest.MonkeyPatch) -> None:
    from taskmill import cron
    from taskmill.store import opening
    from taskmill.store.postgres.store import PostgresStore

    whole, whole_reader, really_open = opening.open_store, opening.open_reader, PostgresStore.open

    def open_store(store: Any, durability: Literal["full", "process"], clock: Clock) -> object:
        name = os.fspath(store) if isinstance(store, str | os.PathLike) else None
        if isinstance(name, str) and name and "\0" not in name:
            return whole(engine.named(name), durability, clock)
        # An argument that is not the name of a store must be refused as usual.
        return whole(store, durability, clock)

    async def open_it(store: PostgresStore) -> None:
        engine.was_used = True
        await really_open(store)

    def open_reader(store: Any, clock: Clock, *, in_thread: bool) -> object:
        engine.was_used = True
        return whole_reader(engine.named(store), clock, in_thread=in_thread)

    patch.setattr(opening, "open_store", open_store)
    patch.setattr(opening, "open_reader", open_reader)
    patch.setattr(cron, "lasting_store", lambda store, clock: open_store(store, "full", clock))
    patch.setattr(PostgresStore, "open", open_it)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    mark = metafunc.definition.get_closest_marker("one_engine")
    if mark is not None and not (len(mark.args) == 1 and isinstance(mark.args[0], str) and mark.args[0].strip()):
        raise pytest.UsageError(
            f"{metafunc.definition.nodeid}: one_engine needs a reason: say why one engine is enough"
        )
    if mark is None and room_of(metafunc.definition.path) in ROOMS and not CHOSEN.intersection(metafunc.fixturenames):
        metafunc.parametrize("engine", ["sqlite", "postgres"], indirect=True)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    yield
    used = item.stash.get(_ENGINE, None)
    if used is not None and not used.was_used:
        pytest.fail("the test opened no store: mark it with pytest.mark.one_engine and the reason", pytrace=False)
