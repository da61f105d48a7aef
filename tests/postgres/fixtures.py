"""Fixtures: the server of the run, and a schema of its own for each test."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from typing import Literal
from urllib.parse import quote

import pytest

from taskmill.ports import Clock
from tests.postgres.keeper import Server
from tests.postgres.server import shared_server

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def postgres_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a real PostgreSQL server, one for all processes of the run."""
    base = tmp_path_factory.getbasetemp()
    # Each worker of pytest-xdist has a folder of its own inside that of the run.
    meeting_place = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "postgres"
    with shared_server(meeting_place) as address:
        yield address


def add_option(parser: pytest.Parser) -> None:
    parser.addoption(
        "--memory-on-postgres",
        action="store_true",
        help="tests that use a store in memory use one on PostgreSQL instead, to see how far the engines are alike",
    )


@pytest.fixture(autouse=True)
def memory_on_postgres(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the option of that name, each store in memory is an empty schema on the server."""
    if not request.config.getoption("--memory-on-postgres"):
        return
    import psycopg

    from taskmill.store import opening

    server: str = request.getfixturevalue("postgres_server")
    whole = opening.open_store

    def open_store(store: object, durability: Literal["full", "process"], clock: Clock) -> object:
        if store != ":memory:":
            return whole(store, durability, clock)  # type: ignore[arg-type]
        schema = f"taskmill_memory_{os.getpid()}_{next(_numbers)}"
        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute(f"CREATE SCHEMA {schema}")
        glue = "&" if "?" in server else "?"
        return whole(f"{server}{glue}options={quote(f'-csearch_path={schema}')}", durability, clock)

    monkeypatch.setattr(opening, "open_store", open_store)


@pytest.fixture
def postgres_store(postgres_server: str) -> Iterator[str]:
    """The address of an empty place on the server: a schema that goes away after the test."""
    import psycopg

    schema = f"taskmill_test_{os.getpid()}_{next(_numbers)}"
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {schema}")
        glue = "&" if "?" in postgres_server else "?"
        yield f"{postgres_server}{glue}options={quote(f'-csearch_path={schema}')}"
        connection.execute("SET client_min_messages = warning")
        connection.execute(f"DROP SCHEMA {schema} CASCADE")


@pytest.fixture
def own_server() -> Iterator[Server]:
    """A server of the test's own, which it may stop and start."""
    server = Server()
    yield server
    server.stop()
