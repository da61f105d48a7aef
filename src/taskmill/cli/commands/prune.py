"""``taskmill prune``: delete old tasks from history."""

from __future__ import annotations

import argparse
import asyncio
from datetime import UTC, datetime
from typing import NamedTuple

from taskmill import Ending, Retention, Scheduler
from taskmill.cli import bulk, output, quantities, text
from taskmill.cli.output import DONE, REFUSED, WRONG, Refusal
from taskmill.cli.store_file import add_file, chosen_file, opened


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_file(parser)
    parser.add_argument(
        "--older", metavar="WHEN", help="delete tasks that ended before then: 30d for 30 days ago, or 2030-01-31"
    )
    parser.add_argument(
        "--keep", metavar="N", type=int, help="delete all but the newest N tasks; with --status, keep N of each ending"
    )
    parser.add_argument(
        "--status",
        metavar="ENDING",
        action="append",
        default=[],
        choices=[*map(str, Ending)],
        help="only tasks with this ending, such as completed; may be repeated",
    )
    bulk.add_consent_arguments(parser)


class _Rule(NamedTuple):
    """What is to be deleted: tasks that ended before an instant, and those beyond a number."""

    before: datetime | None
    keep: int | None
    endings: tuple[Ending, ...]

    def retention(self) -> Retention:
        age = None if self.before is None else datetime.now(UTC) - self.before
        rule = Retention(max_count=self.keep, max_age=age)
        if not self.endings:
            return rule
        return Retention(max_count=None, per_status={str(ending): rule for ending in self.endings})


def execute(arguments: argparse.Namespace) -> int:
    file, rule = chosen_file(arguments.file), _rule(arguments)
    count = asyncio.run(_count(file, rule))
    ended = text.plural(count, "ended task")
    matches = f"{ended} match{'es' if count == 1 else ''}"
    if arguments.dry_run:
        if arguments.json:
            output.print_json({"matched": count, "dry_run": True})
        else:
            output.say(f"{matches}, and nothing was deleted")
        return DONE
    if count and not arguments.yes:
        bulk.check_can_ask(arguments, f"{matches}; add --yes to delete them, or --dry-run only to count them")
        output.say(f"{matches}; once deleted, they and their results are gone")
        if not bulk.asked(f"delete {'it' if count == 1 else f'all {count:,}'}?"):
            output.say("nothing was deleted")
            return REFUSED
    deleted = asyncio.run(_prune(file, rule)) if count else 0
    if arguments.json:
        output.print_json({"matched": count, "dry_run": False, "deleted": deleted})
    elif count:
        output.say(f"deleted {text.plural(deleted, 'ended task')}")
    else:
        output.say("no ended task matches; nothing was deleted")
    return DONE


def _rule(arguments: argparse.Namespace) -> _Rule:
    if arguments.older is None and arguments.keep is None:
        raise Refusal("say what to delete: --older 30d, --keep 1000, or both", WRONG)
    if arguments.keep is not None and arguments.keep < 0:
        raise Refusal("--keep must be at least 0", WRONG)
    now = datetime.now(UTC)
    before = None if arguments.older is None else quantities.moment(arguments.older, "--older", now)
    if before is not None and before > now:
        raise Refusal(f"--older is in the future: {arguments.older}", WRONG)
    return _Rule(before, arguments.keep, tuple(map(Ending, dict.fromkeys(arguments.status))))


async def _count(file: str, rule: _Rule) -> int:
    async with opened(file) as scheduler:
        if not rule.endings:
            return await _count_together(scheduler, rule, tuple(Ending))
        return sum([await _count_together(scheduler, rule, (ending,)) for ending in rule.endings])


async def _count_together(scheduler: Scheduler, rule: _Rule, endings: tuple[Ending, ...]) -> int:
    """Count the tasks that exceed one of the two limits. Both take the oldest, so one set contains the other."""
    older = surplus = 0
    if rule.before is not None:
        older = sum([await scheduler.count(status=ending, until=rule.before) for ending in endings])
    if rule.keep is not None:
        surplus = sum([await scheduler.count(status=ending) for ending in endings]) - rule.keep
    return max(older, surplus, 0)


async def _prune(file: str, rule: _Rule) -> int:
    """Delete in small transactions. If this is interrupted, the same command deletes the rest."""
    async with opened(file) as scheduler:
        return await scheduler.prune(rule.retention())
