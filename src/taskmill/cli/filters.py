"""The flags that select tasks, the same for every command that lists or changes many of them.

:func:`filters_from` returns the filters of ``Scheduler.tasks``, ``history``, ``count`` and ``cancel_where``.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from taskmill import Ending, Status
from taskmill.cli import quantities
from taskmill.cli.output import WRONG, Refusal

_SAME_NAME = ("status", "type", "domain", "group", "key", "tag_prefix", "parent", "exception")


def add_filter_arguments(parser: argparse.ArgumentParser, *, limit: int | None = None) -> None:
    """Add the flags; ``limit`` is the default of ``--limit``, and None is no limit."""
    chosen = parser.add_argument_group("filters", "A task must match all of them.")
    chosen.add_argument(
        "--status",
        metavar="WORD",
        choices=[*map(str, Status), *map(str, Ending)],
        help="a status such as pending, or an ending such as dead_letter",
    )
    chosen.add_argument("--type", metavar="NAME", help="a task type such as sync::transfer")
    chosen.add_argument("--domain", metavar="NAME", help="all task types of a domain")
    chosen.add_argument("--group", metavar="NAME", help="a group; '' for tasks without one")
    chosen.add_argument("--key", metavar="KEY", help="a key")
    chosen.add_argument("--tag", metavar="K=V", action="append", default=[], help="a tag; may be repeated")
    chosen.add_argument("--tag-prefix", metavar="TEXT", help="a tag whose name starts with TEXT")
    chosen.add_argument("--parent", metavar="ID", type=int, help="children of this task")
    chosen.add_argument("--exception", metavar="NAME", help="class of the last error, as `taskmill errors` shows it")
    chosen.add_argument("--location", metavar="PLACE", help="where the last error was raised; '' for an unknown place")
    chosen.add_argument(
        "--since", metavar="WHEN", help="submitted, or ended, since then: 2h for two hours ago, or 2030-01-31T18:30"
    )
    chosen.add_argument("--older", metavar="WHEN", help="submitted, or ended, before then: 30d for 30 days ago")
    default = "" if limit is None else f" (default: {limit:,})"
    chosen.add_argument(
        "--limit", metavar="N", type=int, default=limit or 0, help=f"at most N tasks; 0 for all{default}"
    )


def filters_from(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the filters that were given; raise ``Refusal`` if one cannot be read."""
    given = vars(arguments)
    filters: dict[str, Any] = {name: given[name] for name in _SAME_NAME if given[name] is not None}
    if arguments.location is not None:
        filters["location"] = arguments.location or None
    if arguments.tag:
        filters["tags"] = tags_from(arguments.tag)
    now = datetime.now(UTC)
    if arguments.since is not None:
        filters["since"] = quantities.moment(arguments.since, "--since", now)
    if arguments.older is not None:
        filters["until"] = quantities.moment(arguments.older, "--older", now)
    if arguments.limit < 0:
        raise Refusal("--limit must be at least 0", WRONG)
    if arguments.limit:
        filters["limit"] = arguments.limit
    return filters


def tags_from(given: Sequence[str]) -> dict[str, str]:
    """Parse ``K=V`` words."""
    tags: dict[str, str] = {}
    for tag in given:
        name, equals, value = tag.partition("=")
        if not name or not equals:
            raise Refusal(f"--tag needs NAME=VALUE, got {tag!r}", WRONG)
        tags[name] = value
    return tags
