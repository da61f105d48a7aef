"""Declarative cron: schedules in strict POSIX syntax, exact over daylight saving."""

from taskmill.errors import AlreadyActive, DuplicateRegistration, InvalidCronExpression, InvalidRegistration
from taskmill.model.cron import Cron
from taskmill.policy.cron.expression import CronExpression

__all__ = [
    "AlreadyActive",
    "Cron",
    "CronExpression",
    "DuplicateRegistration",
    "InvalidCronExpression",
    "InvalidRegistration",
]
