"""``CronExpression``: a schedule of five fields."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

from taskmill.errors import ConfigError
from taskmill.model.durations import instant
from taskmill.policy.cron.instants import first_after, last_at
from taskmill.policy.cron.matching import allows
from taskmill.policy.cron.syntax import Fields, parsed
from taskmill.policy.cron.words import in_words


class CronExpression(msgspec.Struct, frozen=True):
    """A schedule in strict POSIX syntax: minute, hour, day of the month, month, weekday.

    Instants are aware datetimes, and results are in the zone of the argument. A minute that daylight saving time skips
    does not occur; one that it repeats occurs twice.
    """

    text: str
    """The expression as written, blanks included."""
    fields: Fields

    @classmethod
    def parse(cls, text: str) -> CronExpression:
        """Parse an expression; raise ``InvalidCronExpression`` if it is not POSIX or can never match."""
        return cls(text, parsed(text))

    def next(self, after: datetime) -> datetime:
        """Return the first occurrence that is strictly later than ``after``."""
        instant(after, "after")
        found = first_after(self.fields, after)
        if found is None:
            raise ConfigError(f"after: {self.text!r} has no occurrence between {after} and the year 10000")
        return found

    def previous(self, at: datetime) -> datetime:
        """Return the last occurrence that is not later than ``at``."""
        instant(at, "at")
        found = last_at(self.fields, at)
        if found is None:
            raise ConfigError(f"at: {self.text!r} has no occurrence between the year 1 and {at}")
        return found

    def matches(self, at: datetime) -> bool:
        """True if the minute that contains ``at`` matches."""
        instant(at, "at")
        # Going through UTC turns a wall time that the zone skips into the instant it denotes.
        return allows(self.fields, at.astimezone(UTC).astimezone(at.tzinfo))

    def in_words(self) -> str:
        """Return the schedule in English, such as ``at 02:30 on Monday to Friday``."""
        return in_words(self.fields)

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"CronExpression.parse({self.text!r})"
