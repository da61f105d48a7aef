"""Heartbeats and news: a thread with its own connection that keeps the node alive and exchanges notifications.

It runs whatever the event loop and the writer are doing, so that a busy node is not declared dead. Heartbeats use the
clock of the server: the clocks of nodes need not agree. The package docstring explains the states of a node.

Other nodes learn of changes by NOTIFY, at most every ``MOMENT`` seconds; ``news.py`` has its content. It is never sent
inside a transaction that stores something, because notifications make commits wait for each other. A counter that grows
with each commit is read with each heartbeat, and catches notifications that were missed.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable, Iterable

import msgspec
import psycopg

from taskmill.core.clock import steady_seconds
from taskmill.core.logs import logger
from taskmill.errors import StoreError
from taskmill.model.commit import ANY_CHANGES, Changes
from taskmill.store.postgres import lease, news
from taskmill.store.postgres.callers import CallersTransactions
from taskmill.store.postgres.connection import SEALED_STATE, Alarm, RawConnection, is_silence
from taskmill.store.postgres.news import CommitCounter, WaitingChanges
from taskmill.store.postgres.session import Session, give_up_unheard

_chance = random.Random()  # noqa: S311 - jitter. The program may have seeded the module's own generator.

BEAT = 1.0
"""Longest time between two heartbeats, in seconds."""
SOONEST = 0.75
"""Shortest time between two heartbeats, as a fraction of ``BEAT``."""
ANSWER = 4.0
"""Seconds within which the server must answer this thread: its statements are short and take no contended lock."""
MOMENT = 0.02
"""Seconds between two notifications; changes in between share one."""
LONGEST_PAUSE = 1.0
"""Longest pause, in seconds, between two attempts to reach a lost server."""
WATCHING = 0.05
"""Seconds between two checks of callers' transactions."""
NEVER = 1e9
"""A lease, in seconds, that never expires; used while no node may be declared dead."""
LOOK_ANYWAY = 10
"""The queue is checked every so many heartbeats even if nothing seems to have changed."""

_decode_ids = msgspec.json.Decoder(frozenset[int]).decode


class Heartbeat:
    """The heartbeat thread of one store; it outlives the store while a handler does not stop."""

    def __init__(
        self,
        connect: Callable[[], RawConnection],
        own_changes: Callable[[], int],
        heard: Callable[[], None],
        cut_off: Callable[[], None],
        others: Callable[[], Iterable[Session]],
        *,
        listens: bool = True,
    ) -> None:
        """Create the thread without starting it.

        ``own_changes`` returns how many own commits the counter may contain. ``heard`` is called in the thread when
        another node has changed something, ``cut_off`` in the thread of the lease when the lease is about to expire.
        ``others`` returns the sessions of this store whose calls are aborted if the server does not answer. Without
        ``listens`` no notifications are received or sent, and changes are only found by the counter.
        """
        self._listens = listens
        self._connect = connect
        self._own_changes = own_changes
        self._heard = heard
        self._lease = lease.Lease(cut_off)
        self._others = others
        self._lost_at: float | None = None
        """When the connection was lost; None while there is one."""
        self._pause = 0.0
        self._in_touch_since = float("-inf")
        self._session: Session | None = None
        self._sender = os.urandom(8).hex()
        self._channel = ""
        self._thread = threading.Thread(target=self._serve, name="taskmill-heartbeat", daemon=True)
        self._node: int | None = None
        self._lingering: set[int] = set()
        """Nodes of this process that have stopped, but wait for handlers that did not stop in time."""
        self._stopped: set[int] = set()
        """Those of the lingering nodes whose rows are not marked as stopped yet."""
        self.left: set[int] = set()
        """Nodes of this process that have left, and whose rows are still there."""
        self._closing = False
        self._closed = threading.Event()
        """Set when the rows of this process's nodes are up to date, or the server cannot be reached while closing."""
        self._untold = WaitingChanges()
        """Changes of this process that the other nodes are to be notified of."""
        self._told_at = 0.0
        self._counted = CommitCounter(news.PATIENCE if listens else 0.0)
        self._changed = WaitingChanges()
        """Changes of other nodes that the loop has not taken yet."""
        self._beats = 0
        self._watched = CallersTransactions()
        self._alive: frozenset[int] = frozenset()
        """The nodes that were alive at the last check."""
        self._own: set[int] = set()
        """Every id that this node has had so far."""
        self.has_dead_nodes = False
        """True if tasks of a dead node, or without a node, have to be recovered."""

    def open(self) -> None:
        """Connect, read the state of the other nodes and start; called in the thread that opens the store."""
        session = Session(self._connect())
        try:
            self._begin(session)
            self._look()
            self._alarm = Alarm()
        except BaseException:
            session.raw.close()
            raise
        self._thread.start()
        self._lease.start()

    def _begin(self, session: Session) -> None:
        self._session = session
        # One channel per set of tables: a database may have several, in different schemas.
        self._channel = session.script("SELECT 'taskmill_' || 'taskmill_change'::regclass::oid")
        if self._listens:
            session.script(f"LISTEN {self._channel}")

    # Called by the loop and the writer

    def enter(self, node: int) -> None:
        """Send heartbeats for this node from now on."""
        self._own.add(node)
        self._node = node
        self._lease.begin(node)

    def linger(self, node: int) -> None:
        """Mark the node as stopped, but keep it alive until it leaves: a handler did not stop in time."""
        self._lingering.add(node)
        self._stopped.add(node)
        if node == self._node:
            # Its handlers were asked to stop already, so its lease needs no watching.
            self._forget_node()
        self._alarm.ring()

    def leave(self, node: int) -> None:
        """Remove the node: nothing runs on it any longer."""
        self.left.add(node)
        self._alarm.ring()

    def tell(self, changes: Changes) -> None:
        """Notify the other nodes of a commit."""
        if self._listens:
            self._untold.add(changes, commits=1)
            self._alarm.ring()

    def watch(self, transaction: str, changes: Changes) -> None:
        """Notify the other nodes of these changes once the caller's transaction that makes them is committed."""
        self._watched.add(transaction, changes)
        self._alarm.ring()

    def take_changed(self) -> Changes | None:
        """Return what other nodes have changed since the last call; None if they have committed nothing."""
        taken = self._changed.take()
        return None if taken is None else taken[0]

    def close(self, timeout: float = 10.0) -> None:
        """Stop the thread, once no handler of this process lingers; not to be called on the loop."""
        self._closing = True
        self._alarm.ring()
        if self._node is None or self._node in self.left:
            self._closed.wait(timeout)

    @property
    def is_dispatched(self) -> bool:
        """True if any node is alive: one of this process now, or another at the last check."""
        is_here = self._node is not None and self._node not in self.left
        return is_here or bool(self._lingering) or not self._alive <= self._own

    @property
    def is_lost(self) -> bool:
        """True if other nodes have declared this one dead."""
        return self._lease.is_lost

    @property
    def is_in_doubt(self) -> bool:
        """True if other nodes may have declared this one dead."""
        return self._lease.is_in_doubt

    @property
    def may_bury(self) -> bool:
        """True if nodes silent for a whole lease may be declared dead.

        No node can send heartbeats while the server is down. So a node that had lost the server gives the others one
        lease to come back.
        """
        return self._lost_at is None and time.monotonic() - self._in_touch_since >= lease.LEASE

    @property
    def longest_silence(self) -> float:
        """Seconds without a heartbeat after which another node counts as dead."""
        return lease.LEASE if self.may_bury else NEVER

    # In the thread

    def _serve(self) -> None:
        beat_at = time.monotonic() + _until_next_beat()
        while True:
            try:
                self._wait(max(0.0, beat_at - time.monotonic()))
                if self._session is None:
                    self._begin(Session(self._connect()))
                self._work(is_due=time.monotonic() >= beat_at)
                self._connection_is_back()
            except (psycopg.Error, StoreError, OSError, ValueError) as wrong:
                # Waiting for a connection that is closed already raises OSError or ValueError.
                self._connection_lost(wrong)
            if time.monotonic() >= beat_at:
                beat_at = time.monotonic() + _until_next_beat()
            if self._closing and self._node is None and not self.left and not self._stopped:
                if not self._lingering:
                    break
                self._closed.set()
        self._lease.close()
        if self._session is not None:
            self._session.raw.close()
        self._alarm.close()
        self._closed.set()

    def _forget_node(self) -> None:
        self._node = None
        self._lease.end()

    def _news(self, changes: Changes = ANY_CHANGES) -> None:
        self._changed.add(changes)
        self._heard()

    def _work(self, *, is_due: bool) -> None:
        session = self._session
        assert session is not None  # noqa: S101 - the caller has connected
        if self._watched and (changes := self._watched.take_committed(session)) is not None:
            self._untold.add(changes, commits=1)
            self._counted.tell(1)
            self._news(changes)
            session.script("SELECT nextval('taskmill_change')")
        self._tell(session)
        heard = self._hear(session)
        self._take_leave(session)
        if is_due:
            if self._node is not None:
                self._beat(session, self._node)
            for node in list(self._lingering):
                self._beat_on(session, node)
            self._look()
            give_up_unheard(session, self._others())
            self._beats += 1
            if self._beats % LOOK_ANYWAY == 0:
                if self._node is not None and session.execute("has_orphans").fetchone()[0]:
                    self.has_dead_nodes = True
                self._news()
        elif heard and not self.is_dispatched:
            # The notification may come from the first node that has entered.
            self._look()

    def _tell(self, session: Session) -> None:
        """Notify the other nodes of changes, unless it was done a moment ago."""
        if self._listens and time.monotonic() >= self._told_at + MOMENT and (untold := self._untold.take()) is not None:
            self._told_at = time.monotonic()
            session.script(f"NOTIFY {self._channel}, '{news.notification(self._sender, *untold)}'")

    def _hear(self, session: Session) -> bool:
        """Take the notifications of other nodes; return True if there were any."""
        heard = False
        for told in session.raw.notifies(timeout=0) if self._listens else ():
            found = news.read_notification(told.payload)
            if found.sender != self._sender:
                heard = True
                self._counted.tell(found.commits)
                self._news(found.changes)
        if self._counted.has_missed(time.monotonic()):
            self._news()
        return heard

    def _take_leave(self, session: Session) -> None:
        """Update the rows of this process's nodes that have stopped or left."""
        for node in list(self._stopped - self.left):
            session.execute("stop_node", (node,))
            self._stopped.discard(node)
        for node in list(self.left):
            session.execute("leave_node", (node,))
            self._lingering.discard(node)
            self._stopped.discard(node)
            if node == self._node:
                self._forget_node()
            self.left.discard(node)
            self._untold.add(ANY_CHANGES)

    def _beat(self, session: Session, node: int) -> None:
        now, was_in_doubt = steady_seconds(), self.is_in_doubt
        is_noted, is_known = session.execute("heartbeat", (node,)).fetchone()
        if is_noted:
            self._lease.renew(now)
        elif is_known or self.is_lost:
            return
        else:
            self._lease.lose()
            logger.error("node %d was declared dead by other nodes; its tasks have returned to the queue", node)
        if was_in_doubt or self.is_lost:
            # Wake the dispatcher: it could start nothing, and may have to register again.
            self._news()

    def _beat_on(self, session: Session, node: int) -> None:
        _, is_known = session.execute("heartbeat", (node,)).fetchone()
        if not is_known:
            logger.error(
                "node %d was declared dead by other nodes; its tasks that did not stop have returned to the queue", node
            )
            self._lingering.discard(node)

    def _look(self) -> None:
        """Check for commits of other nodes, and which nodes are alive, dead or have left."""
        session = self._session
        assert session is not None  # noqa: S101 - the caller has connected
        moved, alive, died, left = session.execute("news", (lease.LEASE,)).fetchone()
        self._alive = _decode_ids(alive)
        # In this order of reads, none of this node's own changes is mistaken for one of another node.
        self._counted.count(moved, self._own_changes(), time.monotonic(), anew=self._beats % LOOK_ANYWAY == 0)
        if (left or (died and self.may_bury)) and not self.has_dead_nodes:
            self.has_dead_nodes = True
            self._news()

    def _wait(self, longest: float) -> None:
        if self._listens and not self._untold.is_empty:
            longest = min(longest, max(0.0, self._told_at + MOMENT - time.monotonic()))
        if self._counted.check_at is not None:
            longest = min(longest, max(0.0, self._counted.check_at - time.monotonic()))
        if self._watched:
            longest = min(longest, WATCHING)
        session = self._session
        self._alarm.wait(None if session is None or session.raw.closed else session.raw.fileno(), longest)

    def _connection_lost(self, wrong: Exception) -> None:
        if self._lost_at is None:
            self._lost_at = time.monotonic()
            logger.warning("lost the connection to the server, trying again: %s", wrong)
        if isinstance(wrong, psycopg.Error) and wrong.sqlstate == SEALED_STATE:
            # Wake the dispatcher: its next turn fails because the store is sealed by a move.
            self._news()
        if is_silence(wrong):
            # The other connections would notice the silent server much later.
            for other in self._others():
                other.give_up()
        if self._session is not None:
            self._session.raw.close()
            self._session = None
        if self._closing:
            # The server cannot be reached: the leases of these nodes will expire.
            self._forget_node()
            self._lingering -= self.left
            self._stopped -= self.left
            self.left.clear()
            self._closed.set()
        if not self._closing or self._lingering:
            self._pause = min(2 * self._pause + 0.05, LONGEST_PAUSE)
            time.sleep(self._pause)

    def _connection_is_back(self) -> None:
        if self._lost_at is not None:
            logger.warning("connected to the server again after %.1f s", time.monotonic() - self._lost_at)
            self._lost_at, self._pause = None, 0.0
            self._in_touch_since = time.monotonic()
            # Notifications may have been missed.
            self._news()


def _until_next_beat() -> float:
    """Return a random time below ``BEAT``, so that nodes started together do not query together."""
    return BEAT * _chance.uniform(SOONEST, 1.0)


class NodeRight:
    """The right to dispatch; on PostgreSQL any number of nodes have it."""

    def __init__(self, heartbeat: Heartbeat, node: int) -> None:
        self._heartbeat = heartbeat
        self.node = node
        """The id of the node; it changes if the node is declared dead and registers again."""

    def inheritable(self) -> list[int]:
        return []

    def linger(self) -> None:
        self._heartbeat.linger(self.node)

    def release(self) -> None:
        self._heartbeat.leave(self.node)
