"""A PostgreSQL server of its own for the measurements, with ``fsync`` on, from the binaries that the tests use.

Its data lie where temporary files go, which must be a real disk.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator

import psycopg
from tests.postgres.keeper import Server
from tests.postgres.server import address

_numbers = itertools.count(1)


@contextlib.contextmanager
def bench_server() -> Iterator[Server]:
    server = Server({"fsync": "on", "full_page_writes": "on"})
    try:
        yield server
    finally:
        server.stop()


def new_database(server: Server) -> str:
    """The address of an empty database."""
    name = f"bench_{next(_numbers)}"
    with psycopg.connect(address(server.folder), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return address(server.folder, name)


def settle(server: Server) -> None:
    """What earlier steps left to the server to write must not be paid for by the next."""
    with psycopg.connect(address(server.folder), autocommit=True) as connection:
        connection.execute("CHECKPOINT")
