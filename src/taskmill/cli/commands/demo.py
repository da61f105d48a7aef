"""``taskmill demo``: run a sync workload on a temporary file, show it, and check the result."""

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
from taskmill.cli import output, text
from taskmill.cli.output import DONE, INTERRUPTED, REFUSED, WRONG, Refusal

if TYPE_CHECKING:
    from taskmill.cli.demo.run import Audit, DemoRun, DemoView
    from taskmill.cli.demo.workload import Witness

SLOTS = 12
SECONDS = 12.0
TASKS = 300
PATIENCE = 60.0
"""Seconds that the demonstration may run too long before it is stopped as stuck."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--seconds", metavar="N", type=float, default=SECONDS, help="approximate duration (default: 12)"
    )
    parser.add_argument("--tasks", metavar="N", type=int, default=TASKS, help="number of tasks (default: 300)")
    parser.add_argument("--fast", action="store_true", help="no simulated waiting")
    parser.add_argument("--web", action="store_true", help="show it in a browser as well; on a terminal, until Ctrl-C")


def execute(arguments: argparse.Namespace) -> int:
    seconds = 0.0 if arguments.fast else arguments.seconds
    if not math.isfinite(seconds) or seconds < 0:
        raise Refusal("--seconds must be a number of at least 0", WRONG)
    if arguments.tasks < 1:
        raise Refusal("--tasks must be at least 1", WRONG)
    # Some tasks fail on purpose; their tracebacks would only garble the view.
    logging.getLogger("taskmill").addHandler(logging.NullHandler())
    try:
        audit = asyncio.run(_show(arguments, seconds))
    except KeyboardInterrupt:
        output.complain("the demonstration was interrupted; its file is removed")
        return INTERRUPTED
    return DONE if audit.balances else REFUSED


async def _show(arguments: argparse.Namespace, seconds: float) -> Audit:
    from taskmill.cli.demo.run import DemoRun, audited
    from taskmill.cli.demo.workload import WEIGHTS, Witness, planned, sync

    witness = Witness()
    with tempfile.TemporaryDirectory(prefix="taskmill-demo-") as folder:
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
            plan = planned(arguments.tasks, seconds, SLOTS)
            run = DemoRun(scheduler, plan, seconds, seconds * 3 + PATIENCE)
            if arguments.web:
                return await _run_with_page(arguments, run, file, witness)
            await _watch(arguments, run)
        audit = await audited(file, run, witness)
        _print(arguments, audit)
        return audit


async def _watch(arguments: argparse.Namespace, run: DemoRun) -> None:
    with contextlib.ExitStack() as stack:
        await run.run(_Quiet() if arguments.json else _chosen_view(stack))


async def _run_with_page(arguments: argparse.Namespace, run: DemoRun, file: str, witness: Witness) -> Audit:
    """Run the demonstration and report its result with its page open, on a terminal until Ctrl-C."""
    import webbrowser

    from taskmill.cli.commands.web import server_of
    from taskmill.cli.demo.run import audited

    server = server_of(run.scheduler)
    run.link = server.link
    output.complain(f"the page of the demonstration: {server.link}")
    async with server.running():
        if output.is_terminal():
            webbrowser.open(server.link)
        await _watch(arguments, run)
        audit = await audited(file, run, witness)
        _print(arguments, audit)
        if output.is_terminal():
            stopped = asyncio.create_task(server.stopped())
            await asyncio.sleep(0)  # it takes the signals from here on
            output.complain("the page stays open until Ctrl-C")
            await stopped
    return audit


def _chosen_view(stack: contextlib.ExitStack) -> DemoView:
    if not output.allows_live_view():
        return _Lines()
    from taskmill.cli.views.demo import demo_frame
    from taskmill.cli.views.live import LiveView

    return stack.enter_context(LiveView(demo_frame, screen=True))


class _Quiet:
    """Shows nothing: with ``--json`` only the result is printed."""

    def draw(self, state: DemoRun) -> None:
        """Do nothing."""


class _Lines:
    """Prints a line now and then, for pipes and logs."""

    def __init__(self) -> None:
        self._next = 0.0

    def draw(self, state: DemoRun) -> None:
        if state.snapshot is None or state.elapsed < self._next:
            return
        self._next = state.elapsed + max(state.seconds / 6, 0.5)
        counts = state.snapshot.counts
        active = {str(status): counts.get(status, 0) for status in Status}
        ended = {str(ending): counts.get(ending, 0) for ending in Ending}
        output.say(f"{state.elapsed:5.1f} s  active: {text.counted(active)}; ended: {text.counted(ended)}")


def _print(arguments: argparse.Namespace, audit: Audit) -> None:
    if arguments.json:
        output.print_json(
            {
                "submitted": audit.submitted,
                "accounted_for": audit.accounted_for,
                "endings": audit.endings,
                "still_active": audit.still_active,
                "lost": audit.lost,
                "seconds": audit.seconds,
                "checks": audit.checks,
                "balances": audit.balances,
            }
        )
        return
    output.paragraph("A sync workload ran on a temporary SQLite file, which a second scheduler then read back:")
    for check in audit.checks:
        output.paragraph(f"{'✓' if check.holds else '✗'} {check.text}", indent="  ")
    if not audit.balances:
        output.complain("a check failed: this is a bug in taskmill, please report it")
