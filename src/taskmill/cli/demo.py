"""``taskmill demo``: a sync workload on a temporary file, shown while it runs and accounted for at the end."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import math
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from taskmill import Ending, Group, Scheduler, Status
from taskmill.cli import machine_output, screen, words
from taskmill.cli.refusal import DONE, INTERRUPTED, REFUSED, WRONG, Refusal

if TYPE_CHECKING:
    from taskmill.cli.account import Account
    from taskmill.cli.performance import Performance, View

SUMMARY = "Show a realistic workload on a temporary file, and check that nothing is lost"

SLOTS = 12
SECONDS = 12.0
TASKS = 300
PATIENCE = 60.0
"""How long past its time the demonstration may run before it is called stuck."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seconds", metavar="N", type=float, default=SECONDS, help="about how long (default: 12)")
    parser.add_argument("--tasks", metavar="N", type=int, default=TASKS, help="how many (default: 300)")
    parser.add_argument("--fast", action="store_true", help="without simulated waiting")


def execute(arguments: argparse.Namespace) -> int:
    seconds = 0.0 if arguments.fast else arguments.seconds
    if not math.isfinite(seconds) or seconds < 0:
        raise Refusal("--seconds must be a number of at least 0", WRONG)
    if arguments.tasks < 1:
        raise Refusal("--tasks must be at least 1", WRONG)
    # The workload fails on purpose; its tracebacks would only tear the view.
    logging.getLogger("taskmill").addHandler(logging.NullHandler())
    try:
        account = asyncio.run(_show(arguments.tasks, seconds, _Quiet() if arguments.json else None))
    except KeyboardInterrupt:
        screen.complain("the demonstration was stopped early; its file is removed")
        return INTERRUPTED
    if arguments.json:
        machine_output.print_document(
            {
                "submitted": account.submitted,
                "accounted_for": account.accounted_for,
                "endings": account.endings,
                "still_active": account.still_active,
                "lost": account.lost,
                "seconds": account.seconds,
                "checks": account.checks,
                "balances": account.balances,
            }
        )
    else:
        _print(account)
    return DONE if account.balances else REFUSED


async def _show(tasks: int, seconds: float, view: View | None) -> Account:
    from taskmill.cli.account import settled
    from taskmill.cli.performance import Performance
    from taskmill.cli.workload import WEIGHTS, Witness, planned, sync

    witness = Witness()
    with tempfile.TemporaryDirectory(prefix="taskmill-demo-") as folder, contextlib.ExitStack() as stack:
        file = str(Path(folder) / "tasks.db")
        async with Scheduler(
            file,
            domains=[sync],
            max_concurrency=SLOTS,
            groups={name: Group(weight=weight) for name, weight in WEIGHTS.items()},
            retention=None,
            state=[witness],
            shutdown_grace=1,
        ) as scheduler:
            performance = Performance(scheduler, planned(tasks, seconds, SLOTS), seconds, seconds * 3 + PATIENCE)
            await performance.play(view or _chosen_view(stack))
        stack.close()
        return await settled(file, performance, witness)


def _chosen_view(stack: contextlib.ExitStack) -> View:
    if not screen.is_terminal():
        return _Lines()
    if not screen.has_rich():
        screen.complain(f"the live view needs rich: {screen.INSTALL_RICH}; going on in plain lines")
        return _Lines()
    from taskmill.cli.live_view import LiveView

    return stack.enter_context(LiveView())


class _Quiet:
    """Shows nothing."""

    def draw(self, performance: Performance) -> None:
        """Only the account is wanted."""


class _Lines:
    """A line now and then, for pipes and logs."""

    def __init__(self) -> None:
        self._next = 0.0

    def draw(self, performance: Performance) -> None:
        if performance.picture is None or performance.elapsed < self._next:
            return
        self._next = performance.elapsed + max(performance.seconds / 6, 0.5)
        counts = performance.picture.counts
        active = {str(status): counts.get(status, 0) for status in Status}
        ended = {str(ending): counts.get(ending, 0) for ending in Ending}
        screen.say(f"{performance.elapsed:5.1f} s  active: {words.counted(active)}; ended: {words.counted(ended)}")


def _print(account: Account) -> None:
    screen.paragraph("A sync workload ran on a temporary SQLite file, which a second scheduler then read back:")
    for check in account.checks:
        screen.paragraph(f"{'✓' if check.holds else '✗'} {check.text}", indent="  ")
    if not account.balances:
        screen.complain("the account does not balance: this is a bug in taskmill, please report it")
