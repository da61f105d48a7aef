"""A thread with a connection of its own that says "alive", listens to the other nodes, and tells them of changes.

It beats whatever the event loop and the writer are doing, so that a busy node is not taken for a dead one. Time is the
database's: clocks of nodes need not agree.

Others are told by NOTIFY, at most once in a moment and never inside a transaction that stores something, because a
notification makes commits wait for each other. Whoever misses one looks at a counter that moves with each commit.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable, Iterable

import msgspec
import psycopg

from taskmill.errors import StoreError
from taskmill.logs import logger
from taskmill.store.postgres import lease
from taskmill.store.postgres.alarm import Alarm
from taskmill.store.postgres.callers_transactions import CallersTransactions
from taskmill.store.postgres.connection import SEALED_STATE, RawConnection, is_silence
from taskmill.store.postgres.lease import Lease, steady_seconds
from taskmill.store.postgres.session import Session
from taskmill.store.postgres.silence import give_up_unheard

BEAT = 1.0
"""Seconds between two signs of life, and between two looks at the counter."""
SOONEST = 0.75
"""The part of it after which the next may come."""
ANSWER = 4.0
"""Seconds within which the server answers what the pulse asks, which is little and waits for nobody."""
MOMENT = 0.02
"""Seconds within which changes are told together."""
LONGEST_PAUSE = 1.0
"""Seconds between two tries to reach a server that is away."""
WATCHING = 0.05
"""Seconds between two looks at what becomes of callers' transactions."""
NEVER = 1e9
"""Seconds without a sign of life for which everybody is excused."""
LOOK_ANYWAY = 10
"""Every so many beats the queue is looked at even if nothing seems to have changed."""

_decode_ids = msgspec.json.Decoder(frozenset[int]).decode


class Pulse:
    """Lives from the opening of a store to its closing, and longer if a handler lingers."""

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
        """What is called in the thread: there is news; nobody hears us any longer.

        ``others`` are the sessions of this store whose calls are given up when they are not answered. If it does not
        listen, it does not tell others either: then the counter is all that is looked at.
        """
        self._listens = listens
        self._connect = connect
        self._own_changes = own_changes
        self._heard = heard
        self._lease = Lease(cut_off)
        self._others = others
        self._lost_at: float | None = None
        """Since when the server is away."""
        self._pause = 0.0
        self._in_touch_since = float("-inf")
        self._session: Session | None = None
        self._sender = os.urandom(8).hex()
        self._channel = ""
        self._thread = threading.Thread(target=self._serve, name="taskmill-pulse", daemon=True)
        self._node: int | None = None
        self._lingering: set[int] = set()
        """Nodes of this process that have stopped, and wait for handlers that would not."""
        self._stopped: set[int] = set()
        """Those of them of which the others do not know yet that they have stopped."""
        self._left: set[int] = set()
        """Nodes of this process that have ended, and whose rows are still there."""
        self._closing = False
        self._closed = threading.Event()
        """The others know all that they can be told for now."""
        self._to_tell = False
        self._told_at = 0.0
        self._foreign: int | None = None
        self._look_again = False
        self._changed = False
        self._beats = 0
        self._watched = CallersTransactions()
        self._alive: frozenset[int] = frozenset()
        """The nodes that were alive at the last look."""
        self._own: set[int] = set()
        """All nodes that this one was so far."""
        self.somebody_died = False
        """Whether the tasks of a dead node, or of none, wait to be rescued."""

    def open(self) -> None:
        """Connect and look around once; called in the thread that opens the store."""
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
        # One channel per set of tables: a database may hold several.
        self._channel = session.script("SELECT 'taskmill_' || 'taskmill_change'::regclass::oid")
        if self._listens:
            session.script(f"LISTEN {self._channel}")

    # What the loop and the writer say

    def enter(self, node: int) -> None:
        """Beat for this node."""
        self._own.add(node)
        self._node = node
        self._lease.begin(node)

    def linger(self, node: int) -> None:
        """The node stops, but not all that it runs; it stays alive until it leaves."""
        self._lingering.add(node)
        self._stopped.add(node)
        if node == self._node:
            # Nothing is left that could be stopped when the lease is in doubt.
            self._forget_node()
        self._alarm.ring()

    def leave(self, node: int) -> None:
        """Nothing runs on the node any longer."""
        self._left.add(node)
        self._alarm.ring()

    def tell(self) -> None:
        """Something was committed that other nodes may want to know."""
        if self._listens:
            self._to_tell = True
            self._alarm.ring()

    def watch(self, transaction: str) -> None:
        """A caller has stored tasks in a transaction of its own, which others are told of once it commits."""
        self._watched.add(transaction)
        self._alarm.ring()

    def take_changed(self) -> bool:
        """Whether another node has committed since the last call."""
        if not self._changed:
            return False
        # In this order: what comes in between was not looked for yet.
        self._changed = False
        return True

    def close(self, timeout: float = 10.0) -> None:
        """Stop, once no handler of this process lingers; called off the loop."""
        self._closing = True
        self._alarm.ring()
        if self._node is None or self._node in self._left:
            self._closed.wait(timeout)

    @property
    def somebody_dispatches(self) -> bool:
        """Whether any node is alive: of ours as it is now, of others' at the last look."""
        is_here = self._node is not None and self._node not in self._left
        return is_here or bool(self._lingering) or not self._alive <= self._own

    @property
    def is_lost(self) -> bool:
        """Whether this node was taken for dead by the others."""
        return self._lease.is_lost

    @property
    def is_in_doubt(self) -> bool:
        """Whether others may take this node for dead, or have done so."""
        return self._lease.is_in_doubt

    @property
    def may_bury(self) -> bool:
        """Whether those who were not seen for a lease are dead.

        When the server was away nobody could be seen. So whoever has lost it gives the others the time of a lease to
        come back as well.
        """
        return self._lost_at is None and time.monotonic() - self._in_touch_since >= lease.LEASE

    @property
    def longest_silence(self) -> float:
        """Seconds after which a node that was not seen is dead."""
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
                # The last two are what waiting for a connection raises that is closed already.
                self._connection_lost(wrong)
            if time.monotonic() >= beat_at:
                beat_at = time.monotonic() + _until_next_beat()
            if self._closing and self._node is None and not self._left and not self._stopped:
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

    def _news(self) -> None:
        self._changed = True
        self._heard()

    def _work(self, *, is_due: bool) -> None:
        session = self._session
        assert session is not None  # noqa: S101 - the caller has connected
        if self._watched and self._watched.take_committed(session):
            session.script("SELECT nextval('taskmill_change')")
            self._to_tell = True
            self._news()
        if self._to_tell and self._listens and time.monotonic() >= self._told_at + MOMENT:
            self._to_tell = False
            self._told_at = time.monotonic()
            session.script(f"NOTIFY {self._channel}, '{self._sender}'")
        heard = False
        for told in session.raw.notifies(timeout=0) if self._listens else ():
            if told.payload != self._sender:
                heard = True
                self._news()
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
                    self.somebody_died = True
                self._news()
        elif heard and not self.somebody_dispatches:
            # It may be the first node that says so.
            self._look()

    def _take_leave(self, session: Session) -> None:
        """Tell of our nodes that have stopped, or ended."""
        for node in list(self._stopped - self._left):
            session.execute("stop_node", (node,))
            self._stopped.discard(node)
        for node in list(self._left):
            session.execute("leave_node", (node,))
            self._lingering.discard(node)
            self._stopped.discard(node)
            if node == self._node:
                self._forget_node()
            self._left.discard(node)
            self._to_tell = True

    def _beat(self, session: Session, node: int) -> None:
        now, was_in_doubt = steady_seconds(), self.is_in_doubt
        is_noted, is_known = session.execute("heartbeat", (node,)).fetchone()
        if is_noted:
            self._lease.renew(now)
        elif is_known or self.is_lost:
            return
        else:
            self._lease.lose()
            logger.error("node %d was taken for dead; its tasks were given to others", node)
        if was_in_doubt or self.is_lost:
            # Whoever could begin nothing looks again, and enters anew if it must.
            self._news()

    def _beat_on(self, session: Session, node: int) -> None:
        _, is_known = session.execute("heartbeat", (node,)).fetchone()
        if not is_known:
            logger.error("node %d was taken for dead; what would not stop there is given to others", node)
            self._lingering.discard(node)

    def _look(self) -> None:
        """Whether somebody has committed, is alive, has died or left."""
        session = self._session
        assert session is not None  # noqa: S101 - the caller has connected
        moved, alive, died, left = session.execute("pulse", (lease.LEASE,)).fetchone()
        self._alive = _decode_ids(alive)
        # Our own changes are counted after they were made: read in this order, the difference never hides others'.
        foreign = moved - self._own_changes()
        if self._foreign is not None and (foreign > self._foreign or self._look_again):
            self._news()
            # What moved the counter may not have been visible yet.
            self._look_again = foreign > self._foreign
        self._foreign = foreign if self._foreign is None else max(foreign, self._foreign)
        if (left or (died and self.may_bury)) and not self.somebody_died:
            self.somebody_died = True
            self._news()

    def _wait(self, longest: float) -> None:
        if self._to_tell and self._listens:
            longest = min(longest, max(0.0, self._told_at + MOMENT - time.monotonic()))
        if self._watched:
            longest = min(longest, WATCHING)
        session = self._session
        self._alarm.wait(None if session is None or session.raw.closed else session.raw.fileno(), longest)

    def _connection_lost(self, wrong: Exception) -> None:
        if self._lost_at is None:
            self._lost_at = time.monotonic()
            logger.warning("the server is away, trying again: %s", wrong)
        if isinstance(wrong, psycopg.Error) and wrong.sqlstate == SEALED_STATE:
            # Whoever dispatches finds out when it looks.
            self._news()
        if is_silence(wrong):
            # The other connections would find out by themselves, much later.
            for other in self._others():
                other.give_up()
        if self._session is not None:
            self._session.raw.close()
            self._session = None
        if self._closing:
            # Nobody hears us any longer; the lease ends by itself.
            self._forget_node()
            self._lingering -= self._left
            self._stopped -= self._left
            self._left.clear()
            self._closed.set()
        if not self._closing or self._lingering:
            self._pause = min(2 * self._pause + 0.05, LONGEST_PAUSE)
            time.sleep(self._pause)

    def _connection_is_back(self) -> None:
        if self._lost_at is not None:
            logger.warning("the server is back after %.1f s", time.monotonic() - self._lost_at)
            self._lost_at, self._pause = None, 0.0
            self._in_touch_since = time.monotonic()
            # Notifications were missed.
            self._news()


def _until_next_beat() -> float:
    """A little less than a beat, now more and now less: nodes that were started together do not ask together."""
    return BEAT * random.uniform(SOONEST, 1.0)  # noqa: S311 - nothing secret


class NodeRight:
    """The right to dispatch, which on PostgreSQL any number of nodes have."""

    def __init__(self, pulse: Pulse, node: int) -> None:
        self._pulse = pulse
        self.node = node
        """Another one, once it was taken for dead and has entered anew."""

    def inheritable(self) -> list[int]:
        return []

    def linger(self) -> None:
        self._pulse.linger(self.node)

    def release(self) -> None:
        self._pulse.leave(self.node)
