"""Declarative cron: expressions in strict POSIX syntax, exact across DST changes, and a cron-only scheduler."""

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
