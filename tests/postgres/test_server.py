"""The PostgreSQL server of the tests is real, private to the run, shared by its processes, and stopped afterwards."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest

from tests.postgres import server
from tests.postgres.network import Network
from tests.postgres.pooler import Pooler
from tests.postgres.server import ENVIRONMENT, shared_server

USER = """
import sys
from pathlib import Path
from tests.postgres.server import shared_server
with shared_server(Path(sys.argv[1])) as address:
    print(address, flush=True)
    sys.stdin.readline()
"""


def _start_user(meeting_place: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", USER, str(meeting_place)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(server.__file__).parents[2],
    )


def _said(user: subprocess.Popen[str]) -> str:
    assert user.stdout is not None
    return user.stdout.readline().strip()


def _leave(user: subprocess.Popen[str]) -> None:
    user.communicate("\n", timeout=30)


def _folder(address: str) -> Path:
    return Path(address.partition("host=")[2])


def _wait_until_gone(folder: Path) -> None:
    pause = threading.Event()
    for _ in range(1500):
        if not folder.exists():
            return
        pause.wait(0.02)
    pytest.fail(f"{folder} is still there")


def test_it_is_a_real_server_that_listens_on_a_socket_only(postgres_server: str) -> None:
    with psycopg.connect(postgres_server) as connection:
        row = connection.execute("SHOW server_version_num").fetchone()
        assert row is not None
        assert int(row[0]) >= 140000
        if "host=/" in postgres_server:
            assert connection.execute("SHOW listen_addresses").fetchone() == ("",)


def test_each_test_has_a_place_of_its_own(postgres_server: str, postgres_store: str) -> None:
    with psycopg.connect(postgres_store) as connection:
        connection.execute("CREATE TABLE mine (n int)")
        (schema,) = connection.execute("SELECT current_schema()").fetchone() or ("",)
    with psycopg.connect(postgres_server) as connection:
        assert connection.execute("SELECT to_regclass('mine')").fetchone() == (None,)
        assert connection.execute("SELECT to_regclass(%s)", (f"{schema}.mine",)).fetchone() != (None,)


@pytest.mark.skipif(ENVIRONMENT in os.environ, reason="an existing server is used, none is started")
class TestSharing:
    def test_processes_share_one_server_which_goes_with_the_last_of_them(self, tmp_path: Path) -> None:
        users = [_start_user(tmp_path / "meet") for _ in range(3)]
        addresses = {_said(user) for user in users}
        assert len(addresses) == 1
        (address,) = addresses
        for user in users[:2]:
            _leave(user)
        with psycopg.connect(address) as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)
        _leave(users[2])
        _wait_until_gone(_folder(address))

    def test_it_goes_even_if_its_users_are_killed_and_the_next_one_gets_another(self, tmp_path: Path) -> None:
        user = _start_user(tmp_path / "meet")
        folder = _folder(_said(user))
        user.kill()
        user.communicate()
        _wait_until_gone(folder)
        with shared_server(tmp_path / "meet") as address:
            assert _folder(address) != folder
        _wait_until_gone(_folder(address))


def test_an_existing_server_is_used_if_one_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(ENVIRONMENT, "postgresql://elsewhere/db")
    with shared_server(tmp_path / "meet") as address:
        assert address == "postgresql://elsewhere/db"
    assert not (tmp_path / "meet").exists()


def test_the_error_says_what_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(ENVIRONMENT, raising=False)
    monkeypatch.setattr(server, "WHEEL", "no_such_wheel")
    with pytest.raises(server.ServerUnavailable, match="install the extra `dev`"), shared_server(tmp_path):
        pass


@pytest.mark.parametrize("between", [Network, Pooler])
def test_what_stands_between_a_test_and_the_server_is_gone_after_the_test(
    between: type[Network | Pooler], postgres_store: str
) -> None:
    with between(postgres_store) as opened:
        connection = psycopg.connect(opened.address.partition("&notifications")[0], autocommit=True)
        connection.execute("SELECT 1")
    with contextlib.closing(connection), pytest.raises(psycopg.OperationalError):
        connection.execute("SELECT 1")
    port = urlsplit(opened.address).port
    assert port is not None
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))
