"""Fixtures: the server of the run, and a schema of its own for each test."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from urllib.parse import quote

import pytest

from tests.postgres.keeper import Server
from tests.postgres.schemas import drop_schema
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


@pytest.fixture
def postgres_store(postgres_server: str) -> Iterator[str]:
    """The address of an empty schema on the server, which is dropped after the test."""
    import psycopg

    schema = f"taskmill_test_{os.getpid()}_{next(_numbers)}"
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {schema}")
        glue = "&" if "?" in postgres_server else "?"
        yield f"{postgres_server}{glue}options={quote(f'-csearch_path={schema}')}"
        connection.execute("SET client_min_messages = warning")
        drop_schema(connection, schema)


@pytest.fixture
def own_server() -> Iterator[Server]:
    """A server for this test alone, which it may stop and start."""
    server = Server()
    yield server
    server.stop()
