"""Declarative cron: schedules in strict POSIX syntax, exact over daylight saving, and a scheduler of nothing else."""

from taskmill.cron_scheduler import CronScheduler
from taskmill.errors import AlreadyActive, DuplicateRegistration, InvalidCronExpression, InvalidRegistration
from taskmill.model.cron import Cron
from taskmill.policy.cron.expression import CronExpression

__all__ = [
    "AlreadyActive",
    "Cron",
    "CronExpression",
    "CronScheduler",
    "DuplicateRegistration",
    "InvalidCronExpression",
    "InvalidRegistration",
]
