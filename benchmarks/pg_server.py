"""A PostgreSQL server of its own for the measurements, with ``fsync`` on, from the binaries that the tests use.

Its data directory is among the temporary files, which must be on a real disk.
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
    """Return the address of an empty database."""
    name = f"bench_{next(_numbers)}"
    with psycopg.connect(address(server.folder), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return address(server.folder, name)


def settle(server: Server) -> None:
    """Write everything that earlier steps left in the server's memory, so that the next step does not pay for it."""
    with psycopg.connect(address(server.folder), autocommit=True) as connection:
        connection.execute("CHECKPOINT")
