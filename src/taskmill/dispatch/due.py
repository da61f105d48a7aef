"""The next delayed tasks, as far as they matter to tasks that could begin now.

When a delayed task comes due, the next turn puts it into the queue. Until then prefetched tasks may begin only if it
could not start before them. So the store is asked not only when the next delayed task is due, but also how urgent the
next few are (docs/decisions/0040).
"""

from taskmill.model.turn import DueFront

UNKNOWN = -1
"""The urgency of a delayed task that may start before any other."""


class DueTasks:
    """When the next delayed task is due, and the urgency of the most urgent one that may be due by now."""

    def __init__(self) -> None:
        self.next_at: int | None = None
        self._urgency = UNKNOWN
        self._until: int | None = None
        """Tasks that are due from this instant on may be more urgent; None if there are none."""

    def note(self, at: int, urgency: int = UNKNOWN) -> None:
        """Note a task that is due at ``at``."""
        if self.next_at is None:
            self.next_at, self._urgency, self._until = at, urgency, None
        else:
            self.next_at, self._urgency = min(self.next_at, at), min(self._urgency, urgency)

    def read(self, found: DueFront) -> None:
        """Replace what is known by what the store has found."""
        self.next_at, urgency, self._until = found
        self._urgency = UNKNOWN if urgency is None else urgency

    def is_past(self, now: int) -> bool:
        """True if a task is due."""
        return self.next_at is not None and self.next_at <= now

    def overtakes(self, effective: int, now: int, *, ages: bool) -> bool:
        """True if a task is due that may start before a prefetched one with this effective priority.

        If tasks age (``ages``), the urgency of a delayed task does not tell: it may have waited for long before.
        """
        is_known = self._until is None or now < self._until
        return self.is_past(now) and (ages or not is_known or self._urgency < effective)
