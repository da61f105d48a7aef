"""Connections to PostgreSQL: addresses, settings that our statements rely on, and errors that say what to do.

``postgresql://ann@db.example/app?notifications=off`` is a libpq URI with additional parameters for taskmill. They are
part of the address so that programs, the command line and environment variables can all set them the same way.
"""

from __future__ import annotations

import functools
import os
import re
import selectors
import socket
import time
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar, cast

from taskmill.errors import ConfigError, StoreBusy, StoreError, SubmissionError
from taskmill.store.moving.marks import SEALED, told_by_seal

try:
    import psycopg
    from psycopg import conninfo
    from psycopg.adapt import AdaptersMap
    from psycopg.types.numeric import Int8BinaryDumper, Int8Dumper
    from psycopg.types.string import TextLoader
except ImportError as wrong:
    raise ConfigError(
        f"a store on PostgreSQL needs psycopg, which cannot be imported here ({wrong}); install taskmill[postgres]"
    ) from wrong

if TYPE_CHECKING:
    RawConnection = psycopg.Connection[tuple[Any, ...]]
    from psycopg.abc import PQGen
else:
    RawConnection = psycopg.Connection

T = TypeVar("T")

# `select` cannot handle descriptors of 1024 and above.
_Selector = getattr(selectors, "PollSelector", selectors.SelectSelector)

Durability = Literal["full", "process"]
OLDEST_SERVER = 130000
"""The first version with pg_current_xact_id and pg_xact_status, which show whether an interrupted commit is over."""

# Force plans that use indexes, whatever the statistics say. Statements are planned once, and a plan made for an empty
# queue must not scan all of a large one.
WRITING = {
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "jit": "off",
    # A transaction that holds a lock for so long is stuck, or its program waits for us outside the database.
    "lock_timeout": "'60s'",
    "statement_timeout": "'300s'",
    # A node that is suspended or has lost its network must not block the others with its locks.
    "idle_in_transaction_session_timeout": "'10s'",
    # A session whose client no longer receives data must not keep its locks either.
    "tcp_user_timeout": "'10s'",
}
READING = {
    "jit": "off",
    "default_transaction_read_only": "on",
    "statement_timeout": "'300s'",
    "idle_in_transaction_session_timeout": "'60s'",
}
# No timeouts: a migration may build indexes over millions of rows, and other nodes wait for it.
MIGRATING = {"jit": "off", "statement_timeout": "0", "lock_timeout": "0", "idle_in_transaction_session_timeout": "0"}

# Defaults for parameters that the address does not set. An unreachable server must be noticed long before a lease ends.
CONNECTING: dict[str, Any] = {
    "application_name": "taskmill",
    "connect_timeout": 3,
    "tcp_user_timeout": 4000,
    "keepalives_idle": 3,
    "keepalives_interval": 1,
    "keepalives_count": 3,
}

PATIENCE = 310.0
"""Longest time, in seconds, that a call waits for an answer: a little more than the server's statement timeout."""
GREETING_PATIENCE = 5.0
"""The same for the first statements on a connection, which the server answers at once."""
MIGRATING_PATIENCE = 4 * 3600.0

SEALED_STATE = "TM001"
"""The SQLSTATE with which a sealed store refuses writes."""

# SQLSTATEs after which the same transaction can simply be retried.
_TRY_AGAIN = {"40001", "40P01"}
_READ_ONLY = "25006"


class Silence(psycopg.OperationalError):
    """The server has not answered in time; whether it is still there is unknown."""


class PatientConnection(psycopg.Connection[tuple[Any, ...]]):
    """A connection whose calls time out.

    A network that drops packets silently looks the same as a server that is still working on the answer.
    """

    patience: float = PATIENCE
    is_given_up = False
    settings = ""
    """SET LOCAL statements for the start of each transaction, behind a pooler that shares sessions between clients."""
    alias: str | None = None
    """The application_name by which the server knows the session in use, behind such a pooler."""
    _unheard_since: float | None = None

    @property
    def unheard_for(self) -> float:
        """Seconds since the server last sent data for the running call; 0 if there is none. Safe from any thread."""
        since = self._unheard_since
        return 0.0 if since is None else time.monotonic() - since

    def give_up(self) -> None:
        """Make the running call fail with :class:`Silence`: the server is known not to answer. Safe from any thread."""
        self.is_given_up = True

    def wait(self, gen: PQGen[T], *args: Any, **kwargs: Any) -> T:
        return super().wait(self._in_time(gen, time.monotonic() + self.patience), *args, **kwargs)

    def _in_time(self, gen: PQGen[T], until: float) -> PQGen[T]:
        """Wrap a psycopg generator with a deadline.

        psycopg's wait loop resumes the generator several times a second even if no data has arrived.
        """
        self._unheard_since = time.monotonic()
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                if ready:
                    self._unheard_since = time.monotonic()
                elif self.is_given_up or time.monotonic() > until:
                    break
                wanted = gen.send(ready)
        except StopIteration as done:
            return cast("T", done.value)
        finally:
            self._unheard_since = None
        self.pgconn.finish()
        raise Silence("the server has not answered in time")


def connect(
    address: str, settings: dict[str, str], durability: Durability = "full", patience: float = PATIENCE
) -> PatientConnection:
    """Open a connection in autocommit mode; transactions are started with an explicit BEGIN."""
    try:
        server, is_ours, _ = parsed_address(address)
        connection = PatientConnection.connect(_completed(server, tuple(CONNECTING.items())), autocommit=True)
        connection.patience = GREETING_PATIENCE
    except (psycopg.Error, OSError) as wrong:
        raise translated(wrong, shown(address)) from wrong
    try:
        if connection.info.server_version < OLDEST_SERVER:
            found = connection.info.server_version // 10000
            raise StoreError(f"{shown(address)}: PostgreSQL {found} is too old, {OLDEST_SERVER // 10000} is needed")
        wanted = {**settings, "synchronous_commit": "on" if durability == "full" else "off"}
        # The names and values in these statements are constants.
        if is_ours:
            connection.prepared_max = 1000
            connection.execute("".join(f"SET {name} = {value};" for name, value in wanted.items()).encode())
        else:
            connection.prepare_threshold = None
            connection.alias = f"taskmill {os.urandom(8).hex()}"
            wanted["application_name"] = f"'{connection.alias}'"
            connection.settings = "".join(f"SET LOCAL {name} = {value};" for name, value in wanted.items())
        connection.patience = patience
        adapt(connection.adapters)
    except (psycopg.Error, OSError) as wrong:
        connection.close()
        raise translated(wrong, shown(address)) from wrong
    except BaseException:
        connection.close()
        raise
    return connection


@functools.lru_cache(16)
def _completed(server: str, defaults: tuple[tuple[str, Any], ...]) -> str:
    """Return what libpq connects to: the server, with each default that it does not set itself."""
    given = conninfo.conninfo_to_dict(server)
    return conninfo.make_conninfo(server, **{name: word for name, word in defaults if name not in given})


def adapt(adapters: AdaptersMap) -> None:
    """Send integers always as bigint, so that a statement has one plan, and load JSON as text for msgspec."""
    adapters.register_dumper(int, Int8Dumper)
    adapters.register_dumper(int, Int8BinaryDumper)
    adapters.register_loader("json", TextLoader)


def shown(address: str) -> str:
    """Return the address without its password and without taskmill's own parameters."""
    server = parsed_address(address).server
    try:
        conninfo.conninfo_to_dict(server)
    except psycopg.Error as wrong:
        reason = str(wrong).strip()
        if "spaces" in reason:
            # libpq's message quotes the surrounding text, which may contain the password.
            reason = "it has blanks in it; write %20 instead"
        raise ConfigError(f"store: this address cannot be read: {reason}") from None
    return without_password(server)


def is_lost(wrong: BaseException, connection: RawConnection) -> bool:
    """True if the connection is lost, and not just a statement refused.

    A read-only error counts as lost: the server was demoted to a standby, and the address may lead to another by now.
    """
    if isinstance(wrong, psycopg.Error) and wrong.sqlstate == _READ_ONLY:
        return True
    return connection.closed or (isinstance(wrong, psycopg.OperationalError) and connection.broken)


def is_silence(wrong: BaseException) -> bool:
    """True if the server did not answer in time, rather than refusing or closing the connection."""
    silence = (Silence, psycopg.errors.ConnectionTimeout)
    return isinstance(wrong, silence) or isinstance(wrong.__cause__, silence)


def may_try_again(wrong: BaseException) -> bool:
    return isinstance(wrong, psycopg.Error) and wrong.sqlstate in _TRY_AGAIN


def translated(wrong: Exception, name: str) -> Exception:
    """Return the taskmill error for an error of PostgreSQL."""
    if isinstance(wrong, OSError):
        # For example too many open files.
        return StoreError(f"{name}: no connection can be made here: {wrong.strerror or wrong}")
    if not isinstance(wrong, psycopg.Error):
        return wrong
    text = str(wrong).strip().partition("\n")[0]
    if SEALED in text:
        return told_by_seal(text)
    if wrong.sqlstate in ("55P03", "57014", *_TRY_AGAIN):
        return StoreBusy(f"{name}: other transactions hold a lock for too long; try again later: {text}")
    if wrong.sqlstate == "54000" and "jsonb" in text:
        return StoreError(f"{name}: this is more than PostgreSQL accepts at once; send it in smaller parts: {text}")
    if wrong.sqlstate == "54000":
        return SubmissionError(f"{name}: a key, a type or a group is too long for an index of PostgreSQL: {text}")
    if wrong.sqlstate in ("26000", "42P05"):
        return StoreError(f"{name}: {text}; behind a pooler that shares sessions, add notifications=off to the address")
    if wrong.sqlstate in ("42501",):
        return StoreError(f"{name}: this user may not do that: {text}")
    if wrong.sqlstate in ("53100",):
        return StoreError(f"{name}: the disk is full; nothing was stored. Free some space and try again")
    if isinstance(wrong, psycopg.OperationalError):
        _, refused, reason = text.partition("FATAL:")
        if refused and "starting up" not in reason and "shutting down" not in reason:
            return StoreError(f"{name}: the server refuses the connection: {reason.strip()}{_advice(reason)}")
        return StoreError(f"{name}: the server cannot be reached: {text}")
    return StoreError(f"{name}: {text}")


def _advice(refusal: str) -> str:
    if "password" in refusal:
        return "; give the password in PGPASSWORD, in ~/.pgpass or in the address"
    if "database" in refusal and "does not exist" in refusal:
        return "; make it with createdb, or correct the address"
    return ""


class Address(NamedTuple):
    """A parsed address. ``server`` is the part for libpq."""

    server: str
    notifications: bool = True
    """True if a connection keeps its session, and so can LISTEN; False behind a pooler in transaction mode."""
    create: bool = True
    """True if missing tables are created and old ones migrated."""


def parsed_address(address: str) -> Address:
    start, mark, query = address.partition("?")
    said: dict[str, bool] = {}
    left: list[str] = []
    for parameter in query.split("&") if mark else ():
        name, _, value = parameter.partition("=")
        if name not in ("notifications", "create"):
            left.append(parameter)
        elif value not in ("on", "off"):
            raise ConfigError(f"store: {name} must be on or off, got {value!r}")
        else:
            said[name] = value == "on"
    return Address(start + ("?" + "&".join(left) if left else ""), **said)


def without_password(address: str) -> str:
    """Return the address without its password, as it may be shown."""
    shown = re.sub(r"(://[^:/@]*):[^@/]*@", r"\1@", address)
    return re.sub(r"(?<=[?&])(password|sslpassword)=[^&]*", r"\1=***", shown)


class Alarm:
    """Wakes one thread that waits for data on a connection; any other thread can call :meth:`ring`."""

    def __init__(self) -> None:
        self._woken, self._wake = socket.socketpair()
        self._wake.setblocking(False)

    def ring(self) -> None:
        # If the buffer is full, the thread has been woken already.
        try:
            self._wake.send(b".")
        except (BlockingIOError, OSError):
            return

    def wait(self, connection: int | None, longest: float) -> None:
        """Wait until it rings or the descriptor ``connection`` is readable, at most ``longest`` seconds."""
        with _Selector() as selector:
            selector.register(self._woken, selectors.EVENT_READ)
            if connection is not None:
                selector.register(connection, selectors.EVENT_READ)
            if any(key.fileobj is self._woken for key, _ in selector.select(longest)):
                self._woken.recv(4096)

    def close(self) -> None:
        self._woken.close()
        self._wake.close()
