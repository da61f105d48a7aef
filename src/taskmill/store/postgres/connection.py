"""Connecting to PostgreSQL: settings that our statements rely on, and errors that a person can act on."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

from taskmill.errors import ConfigError, StoreBusy, StoreError, SubmissionError
from taskmill.store.moving.marks import SEALED, told_by_seal
from taskmill.store.postgres.address import parsed, without_password

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
Durability = Literal["full", "process"]
OLDEST_SERVER = 130000
"""The first with pg_current_xact_id and pg_xact_status, which tell what became of a commit that was cut off."""

# Statements are planned once and for all sizes of tables: a plan that was made while the queue was empty must not read
# all of it when it is full.
WRITING = {
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "jit": "off",
    # Somebody who holds what we need for so long is stuck, or waits for us in a transaction of its own.
    "lock_timeout": "'60s'",
    "statement_timeout": "'300s'",
    # A node that was suspended, or whose network died, must not keep the others waiting with what it has locked.
    "idle_in_transaction_session_timeout": "'10s'",
    # Nor must a session that cannot get rid of a long answer.
    "tcp_user_timeout": "'10s'",
}
READING = {
    "jit": "off",
    "default_transaction_read_only": "on",
    "statement_timeout": "'300s'",
    "idle_in_transaction_session_timeout": "'60s'",
}
# Whoever makes indexes over millions of rows, or waits for another who does, may take its time.
MIGRATING = {"jit": "off", "statement_timeout": "0", "lock_timeout": "0", "idle_in_transaction_session_timeout": "0"}

# What the address does not say. A server that is out of reach must be noticed long before a lease ends.
CONNECTING: dict[str, Any] = {
    "application_name": "taskmill",
    "connect_timeout": 3,
    "tcp_user_timeout": 4000,
    "keepalives_idle": 3,
    "keepalives_interval": 1,
    "keepalives_count": 3,
}

PATIENCE = 310.0
"""Seconds that a call waits for an answer: a little longer than the server works on it."""
GREETING_PATIENCE = 5.0
"""The same for what is said first on a connection, which takes the server no time."""
MIGRATING_PATIENCE = 4 * 3600.0

SEALED_STATE = "TM001"
"""What a sealed store answers to whoever writes to it."""

# SQLSTATEs after which the same transaction may simply be tried again.
_TRY_AGAIN = {"40001", "40P01"}
_READ_ONLY = "25006"


class Silence(psycopg.OperationalError):
    """The server has not answered in time. Nobody knows whether it is there."""


class PatientConnection(psycopg.Connection[tuple[Any, ...]]):
    """Waits for answers only so long. A network that swallows everything looks like a server that thinks."""

    patience: float = PATIENCE
    is_given_up = False
    settings = ""
    """What each transaction begins with, where a pooler hands sessions around and none of them is ours to set."""
    alias: str | None = None
    """By what name the server knows the session that works for us, where a pooler hands sessions around."""
    _unheard_since: float | None = None

    @property
    def unheard_for(self) -> float:
        """Seconds for which a call has been waiting without a word; 0 if none is under way. For any thread."""
        since = self._unheard_since
        return 0.0 if since is None else time.monotonic() - since

    def give_up(self) -> None:
        """Somebody else has found that the server is silent: wait no longer. May be called by any thread."""
        self.is_given_up = True

    def wait(self, gen: PQGen[T], *args: Any, **kwargs: Any) -> T:
        return super().wait(self._in_time(gen, time.monotonic() + self.patience), *args, **kwargs)

    def _in_time(self, gen: PQGen[T], until: float) -> PQGen[T]:
        """The same generator; whoever drives it comes by every moment, whether there was an answer or not."""
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
    """A connection in autocommit mode; transactions are begun in so many words."""
    try:
        server, is_ours, _ = parsed(address)
        given = conninfo.conninfo_to_dict(server)
        whole = conninfo.make_conninfo(server, **{name: word for name, word in CONNECTING.items() if name not in given})
        connection = PatientConnection.connect(whole, autocommit=True)
        connection.patience = GREETING_PATIENCE
    except (psycopg.Error, OSError) as wrong:
        raise translated(wrong, shown(address)) from wrong
    try:
        if connection.info.server_version < OLDEST_SERVER:
            found = connection.info.server_version // 10000
            raise StoreError(f"{shown(address)}: PostgreSQL {found} is too old, {OLDEST_SERVER // 10000} is needed")
        wanted = {**settings, "synchronous_commit": "on" if durability == "full" else "off"}
        # Fixed words and values, none of them from outside.
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


def adapt(adapters: AdaptersMap) -> None:
    """Integers always travel as bigint, so that a statement has one plan; JSON comes as text, which msgspec reads."""
    adapters.register_dumper(int, Int8Dumper)
    adapters.register_dumper(int, Int8BinaryDumper)
    adapters.register_loader("json", TextLoader)


def shown(address: str) -> str:
    """The address without its password, and without what is said to us and not to the server."""
    server = parsed(address).server
    try:
        conninfo.conninfo_to_dict(server)
    except psycopg.Error as wrong:
        reason = str(wrong).strip()
        if "spaces" in reason:
            # It would be shown with what is before and after it, which may be a password.
            reason = "it has blanks in it; write %20 instead"
        raise ConfigError(f"store: this address cannot be read: {reason}") from None
    return without_password(server)


def is_lost(wrong: BaseException, connection: RawConnection) -> bool:
    """Whether the connection is gone, and not merely a statement refused.

    One that may only read leads to a server that others have taken the place of: its address may lead elsewhere by now.
    """
    if isinstance(wrong, psycopg.Error) and wrong.sqlstate == _READ_ONLY:
        return True
    return connection.closed or (isinstance(wrong, psycopg.OperationalError) and connection.broken)


def is_silence(wrong: BaseException) -> bool:
    """Whether the server did not answer, instead of being away."""
    silence = (Silence, psycopg.errors.ConnectionTimeout)
    return isinstance(wrong, silence) or isinstance(wrong.__cause__, silence)


def may_try_again(wrong: BaseException) -> bool:
    return isinstance(wrong, psycopg.Error) and wrong.sqlstate in _TRY_AGAIN


def translated(wrong: Exception, name: str) -> Exception:
    """PostgreSQL's errors as ours."""
    if isinstance(wrong, OSError):
        # Such as too many open files.
        return StoreError(f"{name}: no connection can be made here: {wrong.strerror or wrong}")
    if not isinstance(wrong, psycopg.Error):
        return wrong
    text = str(wrong).strip().partition("\n")[0]
    if SEALED in text:
        return told_by_seal(text)
    if wrong.sqlstate in ("55P03", "57014", *_TRY_AGAIN):
        return StoreBusy(f"{name}: others hold what is needed for too long: {text}")
    if wrong.sqlstate == "54000" and "jsonb" in text:
        return StoreError(f"{name}: this is more than PostgreSQL takes at once, give it in smaller parts: {text}")
    if wrong.sqlstate == "54000":
        return SubmissionError(f"{name}: a key, a type or a group is too long for an index of PostgreSQL: {text}")
    if wrong.sqlstate in ("26000", "42P05"):
        return StoreError(
            f"{name}: {text}; if this is a pooler that hands sessions around, add notifications=off to the address"
        )
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
