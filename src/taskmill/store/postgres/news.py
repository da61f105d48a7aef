"""The content of notifications between nodes: which tasks their commits have put into the queue (docs/decisions/0035).

A notification names the node that sends it, the number of its commits since the last one, and the tasks that these have
queued. Any other change that a dispatcher needs to know is reported as "more", and leads to a survey.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable

import msgspec

from taskmill.model.commit import ANY_CHANGES, NO_CHANGES, Changes

LONGEST = 7900
"""The largest number of bytes in a notification; the server refuses 8000."""

PATIENCE = 0.2
"""Seconds for which a commit that was counted may wait for its notification."""
LOOK_AGAIN = 1.0
"""Seconds after which a commit that was counted is surely visible."""


class Notification(msgspec.Struct, array_like=True):
    """A notification of one node to the others. Older versions of taskmill send only the name of the sender."""

    sender: str
    commits: int
    queued: list[tuple[int, int]] | None
    """Ranges of consecutive ids, first and last; None if more has changed than the places of tasks."""

    @property
    def changes(self) -> Changes:
        if self.queued is None:
            return ANY_CHANGES
        return Changes(frozenset(id for first, last in self.queued for id in range(first, last + 1)))


_decode = msgspec.json.Decoder(Notification).decode
_encode = msgspec.json.Encoder().encode


def notification(sender: str, changes: Changes, commits: int) -> str:
    """Return the text of a notification."""
    runs = None if changes.more else _runs(changes.queued)
    text = _encode(Notification(sender, commits, runs)).decode()
    return text if len(text) <= LONGEST else _encode(Notification(sender, commits, None)).decode()


def read_notification(text: str) -> Notification:
    """Parse a notification. If the text cannot be parsed, the result says that anything may have changed."""
    try:
        return _decode(text)
    except msgspec.DecodeError:
        return Notification(text, 0, None)


def _runs(ids: Iterable[int]) -> list[tuple[int, int]]:
    runs: list[tuple[int, int]] = []
    for id in sorted(ids):
        if runs and runs[-1][1] == id - 1:
            runs[-1] = (runs[-1][0], id)
        else:
            runs.append((id, id))
    return runs


class WaitingChanges:
    """Changes that one thread adds and another takes, and the number of commits that made them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pending: tuple[Changes, int] | None = None

    @property
    def is_empty(self) -> bool:
        return self._pending is None

    def add(self, changes: Changes, commits: int = 0) -> None:
        with self._lock:
            before, count = self._pending or (NO_CHANGES, 0)
            self._pending = before.joined(changes), count + commits

    def take(self) -> tuple[Changes, int] | None:
        """Return the changes since the last call, and the number of commits; None if there were none."""
        with self._lock:
            pending, self._pending = self._pending, None
        return pending


class CommitCounter:
    """Finds commits of other nodes that no notification has reported.

    A sequence grows with each commit, a moment before it is visible. This process knows how many of these commits are
    its own, and how many the notifications of the others have covered.
    """

    def __init__(self, patience: float) -> None:
        self._patience = patience
        """Seconds for which a commit that was counted may wait for its notification."""
        self._counted: int | None = None
        """The number of commits of other nodes that the sequence proves; None before the first count."""
        self._told = 0
        """How many of these commits notifications have reported."""
        self._look_again = False
        self.check_at: float | None = None
        """When :meth:`has_missed` has to be called."""

    def tell(self, commits: int) -> None:
        """Note that a notification has covered commits of other nodes."""
        self._told += commits

    def count(self, total: int, own: int, now: float, *, anew: bool = False) -> None:
        """Note the value of the sequence. ``own`` is the largest number of own commits in it.

        With ``anew``, start from the counted number again: failed transactions and late notifications have made the two
        differ.
        """
        foreign = total - own
        if self._counted is None:
            self._told = foreign
        if self._counted is None or anew:
            self._counted = foreign
            self._told = min(self._told, foreign)
        else:
            self._counted = max(self._counted, foreign)
        if self._counted > self._told and self.check_at is None:
            self.check_at = now + self._patience

    def has_missed(self, now: float) -> bool:
        """True if a commit was not reported by a notification in time, so that a survey has to find its changes."""
        if self._counted is None or self.check_at is None or now < self.check_at:
            return False
        is_missing = self._counted > self._told
        # A change that was counted may not have been visible yet, so it is reported once more.
        has_missed, self._look_again = is_missing or self._look_again, is_missing
        self._told = max(self._told, self._counted)
        self.check_at = now + LOOK_AGAIN if is_missing else None
        return has_missed
