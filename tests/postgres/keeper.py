"""The keeper of the PostgreSQL server of a test run: starts it, waits until it is unused, and stops it.

Run as a program with the folder that the users of the server share.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.postgres.server import PATIENCE, SUPERUSER, binaries, ordinary_user

SETTINGS = {
    "listen_addresses": "",
    "unix_socket_permissions": "0700",
    "max_connections": "300",
    "shared_buffers": "128MB",
    # A power cut in the middle of a test run loses only test data.
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "on",
    "autovacuum_naptime": "10s",
    "log_min_messages": "fatal",
}


class Server:
    """One server process with data and socket in a folder of its own."""

    def __init__(self, settings: dict[str, str] | None = None) -> None:
        # A short path: the names of Unix sockets are limited to about a hundred characters.
        self.folder = Path(tempfile.mkdtemp(prefix="taskmill-pg-"))
        self._prefix, owner = ordinary_user()
        if owner is not None:
            shutil.chown(self.folder, owner)
        self._data = str(self.folder / "data")
        self._run("initdb", "-D", self._data, "-U", SUPERUSER, "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
        given = {**SETTINGS, **(settings or {}), "unix_socket_directories": str(self.folder)}
        self._words = [word for name, value in given.items() for word in ("-c", f"{name}={value}")]
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(
            [*self._prefix, str(binaries() / "postgres"), "-D", self._data, *self._words], stdin=subprocess.DEVNULL
        )
        self._wait_until_ready()

    def _run(self, program: str, *words: str) -> None:
        done = subprocess.run(
            [*self._prefix, str(binaries() / program), *words], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise RuntimeError(f"{program} failed: {done.stdout}{done.stderr}")

    def _wait_until_ready(self) -> None:
        give_up_at = time.monotonic() + PATIENCE
        ready = [str(binaries() / "pg_isready"), "-q", "-h", str(self.folder), "-U", SUPERUSER, "-d", "postgres"]
        while subprocess.run(ready, check=False).returncode:
            if self.process.poll() is not None or time.monotonic() > give_up_at:
                raise RuntimeError("the server did not become ready")
            time.sleep(0.02)

    def halt(self) -> None:
        """Shut down fast: end all sessions, keep everything committed."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self.process.send_signal(signal.SIGQUIT)
                self.process.wait()

    def crash(self) -> None:
        """End at once, as after a power cut: open transactions are rolled back at the next start."""
        self.process.send_signal(signal.SIGQUIT)
        self.process.wait()

    def stop(self) -> None:
        """Shut down and delete the data."""
        self.halt()
        shutil.rmtree(self.folder, ignore_errors=True)


def keep(meeting_place: Path) -> None:
    server = Server()
    told = meeting_place / "socket"
    try:
        waiting = meeting_place / "socket.new"
        waiting.write_text(str(server.folder), encoding="utf-8")
        waiting.rename(told)
        descriptor = os.open(meeting_place / "users", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    finally:
        told.unlink(missing_ok=True)
        server.stop()


if __name__ == "__main__":
    keep(Path(sys.argv[1]))
