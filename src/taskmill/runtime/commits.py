"""The followers of commits: every part of a scheduler that must know what a commit of this process did."""

from __future__ import annotations

from collections.abc import Callable

from taskmill.model.commit import NO_COMMIT, Commit

Follower = Callable[[Commit, int, bool], None]
"""Called with a commit, when it was made, and True if it would survive a power cut already."""


class Commits:
    """The list of followers, in the order in which they are called."""

    def __init__(self) -> None:
        self._followers: list[Follower] = []

    def join(self, follower: Follower) -> None:
        """Call ``follower`` for every commit from now on, before those that follow already."""
        self._followers.insert(0, follower)

    def leave(self, follower: Follower) -> None:
        self._followers.remove(follower)

    def publish(self, commit: Commit, now: int, *, durable: bool) -> None:
        """Tell the followers of a commit that did something besides what was asked."""
        if commit != NO_COMMIT:
            for follow in self._followers:
                follow(commit, now, durable)
