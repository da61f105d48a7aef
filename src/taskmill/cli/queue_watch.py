"""``taskmill watch STORE``: follow a whole queue, whichever process dispatches it, until Ctrl-C."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
from datetime import UTC, datetime
from typing import Protocol

from taskmill import Ending, Status, StoreBusy, TaskNotFound
from taskmill.cli import output, text
from taskmill.cli.output import DONE
from taskmill.cli.store_file import looking, shown
from taskmill.cli.views.polling import QueuePoller, QueueState

INTERVAL = 0.5
MOST_ENDINGS = 50


class _View(Protocol):
    """Shows one state of the queue after the other."""

    def draw(self, state: QueueState, /) -> None: ...


def watch_queue(file: str, arguments: argparse.Namespace) -> int:
    last: list[QueueState] = []
    with contextlib.ExitStack() as stack:
        view = _chosen_view(file, arguments, stack)
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(_follow(file, view, last, once=arguments.once))
    if last and not isinstance(view, _JsonLines | _Lines):
        # The live view has restored the terminal; print the last state so that it stays visible.
        _print(file, last[0])
    return DONE


async def _follow(file: str, view: _View | None, last: list[QueueState], *, once: bool) -> None:
    """Draw the queue again and again, and keep the newest state in ``last``."""
    async with looking(file) as reader:
        poller = QueuePoller(reader, endings=MOST_ENDINGS)
        while True:
            # A store may be busy for a moment, and the task to explain may be gone; then draw nothing new.
            with contextlib.suppress(StoreBusy, TaskNotFound):
                last[:] = [await poller.read()]
                if view is not None:
                    view.draw(last[0])
                if once:
                    return
            await asyncio.sleep(INTERVAL)


def _chosen_view(file: str, arguments: argparse.Namespace, stack: contextlib.ExitStack) -> _View | None:
    """Return what shows the states; None if only the last one is to be printed."""
    if arguments.json:
        return _JsonLines(file)
    if not output.allows_live_view(plain=arguments.plain):
        return _Lines()
    if arguments.once:
        return None
    from taskmill.cli.views.live import LiveView
    from taskmill.cli.views.queue import QueueFrame

    return stack.enter_context(LiveView(QueueFrame(shown(file), fills_screen=True), screen=True))


def _print(file: str, state: QueueState) -> None:
    from rich.console import Console

    from taskmill.cli.views.queue import QueueFrame

    console = Console()
    console.print(QueueFrame(shown(file), fills_screen=False)(state, console))


class _Lines:
    """Prints a line when the counts or the warnings have changed."""

    def __init__(self) -> None:
        self._last: object = None

    def draw(self, state: QueueState) -> None:
        counts = state.snapshot.counts
        active = text.counted({str(kind): counts.get(kind, 0) for kind in Status})
        ended = text.counted({str(kind): counts.get(kind, 0) for kind in Ending})
        line = "; ".join([f"active: {active}", f"ended: {ended}", *state.lasting_warnings()])
        if line != self._last:
            self._last = line
            output.say(f"{datetime.now().astimezone():%H:%M:%S} {line}")


class _JsonLines:
    """Prints one object per line when anything but the time has changed."""

    def __init__(self, file: str) -> None:
        self._store = shown(file)
        self._last: object = None

    def draw(self, state: QueueState) -> None:
        snapshot = state.snapshot
        document = {
            "store": self._store,
            "dispatching": snapshot.has_dispatcher,
            "counts": snapshot.counts,
            "running": state.running,
            "groups": snapshot.groups,
            "next_due": snapshot.next_due,
            "endings": [record.id for record in state.endings],
            "warnings": [*state.lasting_warnings()],
        }
        if document != self._last:
            self._last = document
            output.print_json_line({"at": datetime.now(UTC), **document})
