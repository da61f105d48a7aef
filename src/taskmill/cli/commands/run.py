"""``taskmill run``: run a scheduler that the user's code defines, until a signal stops it.

The first SIGINT or SIGTERM stops gracefully. The second ends the process at once; interrupted attempts run again later.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib
import inspect
import logging
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

from taskmill import Domain, Scheduler, Status, StoreBusy, Task, TaskNotFound, blocking
from taskmill.cli import output
from taskmill.cli.output import DONE, WRONG, Refusal
from taskmill.cli.text import first_line, printable
from taskmill.cli.views.run_lines import RunJsonLines, RunLines

if TYPE_CHECKING:
    from taskmill.cli.views.live import LiveView
    from taskmill.cli.views.run import RunState

DRAIN_INTERVAL = 0.2
DRAIN_MARGIN = 0.02
HANG_UP: Sequence[signal.Signals] = (signal.SIGHUP,) if hasattr(signal, "SIGHUP") else ()
LOOK_INTERVAL = 0.05
STANDBY_INTERVAL = 1.0
VIEW_INTERVAL = 0.5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "target",
        metavar="MODULE:SCHEDULER",
        help="a scheduler such as app.tasks:scheduler, or a function that returns one",
    )
    parser.add_argument("--standby", action="store_true", help="if another scheduler dispatches, wait and take over")
    parser.add_argument("--verbose", action="store_true", help="print a line for each event")
    parser.add_argument("--plain", action="store_true", help="no live view")


def execute(arguments: argparse.Namespace) -> int:
    scheduler = find_scheduler(arguments.target)
    _log_failures()
    is_live = not arguments.json and not arguments.plain and output.is_terminal() and output.has_rich()
    lines = RunJsonLines() if arguments.json else RunLines(verbose=arguments.verbose, is_live=is_live)
    asyncio.run(_run(scheduler, arguments.target, lines, standby=arguments.standby, is_live=is_live))
    return DONE


# The scheduler


AnyScheduler = Scheduler | blocking.Scheduler
NAME_ONE = "name a Scheduler or a function that returns one"


def find_scheduler(target: str) -> AnyScheduler:
    """Return the scheduler named ``module:attribute``, or what a function of that name returns.

    The current directory is on the import path.
    """
    module_name, colon, attribute = target.partition(":")
    names = [*module_name.split("."), *attribute.split(".")]
    if not colon or not all(name.isidentifier() for name in names):
        raise Refusal(f"name the scheduler as module:attribute, such as app.tasks:scheduler; got {target!r}", WRONG)
    found: object = _module(module_name)
    for name in attribute.split("."):
        try:
            found = getattr(found, name)
        except AttributeError:
            raise Refusal(f"module {module_name} has no {attribute}", WRONG) from None
    if isinstance(found, AnyScheduler):
        return found
    if not inspect.isroutine(found):
        raise Refusal(f"{target} is {_kind(found)}, not a Scheduler; {NAME_ONE}", WRONG)
    made = _made(found, target)
    if not isinstance(made, AnyScheduler):
        raise Refusal(f"what {target}() returned is {_kind(made)}, not a Scheduler", WRONG)
    return made


def _kind(found: object) -> str:
    """Say what was found in place of a scheduler."""
    match found:
        case Task():
            return "a task"
        case Domain():
            return "a domain"
        case type():
            return "a class"
        case _:
            return f"of type {type(found).__name__}"


def _made(function: Callable[..., object], target: str) -> object:
    """Return what a function makes. Handlers and functions that need arguments are not called."""
    if needed := _required(function):
        raise Refusal(f"{target} needs arguments ({', '.join(needed)}); {NAME_ONE} and needs none", WRONG)
    try:
        made = function()
    except Exception as wrong:
        _print_traceback(wrong)
        raise Refusal(f"calling {target}() failed: {_error_line(wrong)}", WRONG) from wrong
    if inspect.iscoroutine(made):
        made.close()
    return made


def _required(function: Callable[..., object]) -> list[str]:
    """Return the names of the parameters without defaults."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        # Some built-in functions have no signature.
        return []
    may_be_empty = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [each.name for each in parameters if each.default is each.empty and each.kind not in may_be_empty]


def _module(name: str) -> object:
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as wrong:
        missing = wrong.name or ""
        if name == missing or name.startswith(f"{missing}."):
            raise Refusal(f"there is no module {name} in {here} or on Python's path", WRONG) from None
        _print_traceback(wrong)
        raise Refusal(f"importing {name} failed: it needs the module {missing}", WRONG) from wrong
    except Exception as wrong:
        _print_traceback(wrong)
        raise Refusal(f"importing {name} failed: {_error_line(wrong)}", WRONG) from wrong


def _error_line(wrong: Exception) -> str:
    return f"{type(wrong).__name__}: {first_line(str(wrong))}"


def _print_traceback(wrong: Exception) -> None:
    """Print the traceback to stderr, from the first frame of the user's code."""
    frame = wrong.__traceback__
    while frame is not None and _is_ours(frame.tb_frame.f_code.co_filename):
        frame = frame.tb_next
    if frame is None and not isinstance(wrong, SyntaxError | ImportError):
        # The error was raised by this file: the sentence that follows says all.
        return
    lines = traceback.format_exception(type(wrong), wrong, frame)
    sys.stderr.write("".join("\n".join(map(printable, line.splitlines())) + "\n" for line in lines))


def _is_ours(file: str) -> bool:
    """True if the file is this one or part of Python's import system."""
    return file == __file__ or file.startswith("<frozen importlib") or file == importlib.__file__


def _log_failures() -> None:
    """Log failures to stderr, unless the module has set up logging itself."""
    if not logging.getLogger().hasHandlers():
        logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s")
        logging.getLogger("taskmill").setLevel(logging.INFO)
        # The command shows starts and ends itself.
        logging.getLogger("taskmill.task").setLevel(logging.WARNING)


# Running


def _opened(found: AnyScheduler) -> AbstractAsyncContextManager[Scheduler]:
    return found if isinstance(found, Scheduler) else found.on_running_loop()


async def _run(found: AnyScheduler, target: str, lines: RunLines, *, standby: bool, is_live: bool) -> None:
    stop_asked, cancel_asked, said_store = asyncio.Event(), asyncio.Event(), asyncio.Event()
    view = _live_view(target) if is_live else None

    def ask_to_stop(name: str) -> None:
        lines.stopping(name, found.shutdown_grace)
        stop_asked.set()

    def ask_to_cancel(name: str) -> None:
        lines.cancelling(name)
        cancel_asked.set()

    with _signals(ask_to_stop, ask_to_cancel, before_exit=view.show_cursor if view else lambda: None):
        async with _opened(found) as scheduler:
            listening = asyncio.create_task(_listen(scheduler, lines, said_store))
            running = asyncio.create_task(scheduler.run(standby=standby))
            stop_wanted = asyncio.create_task(stop_asked.wait())
            showing = asyncio.create_task(
                _show_start_and_view(scheduler, target, lines, view, said_store, standby=standby)
            )
            draining = asyncio.create_task(_report_draining(scheduler, stop_asked, lines))
            cancelling = asyncio.create_task(_cancel_when_asked(scheduler, cancel_asked))
            others = [showing, stop_wanted, draining, cancelling]
            try:
                await asyncio.wait([running, stop_wanted], return_when=asyncio.FIRST_COMPLETED)
                await scheduler.stop()
                await running
            finally:
                for other in others:
                    other.cancel()
                await asyncio.wait(others)
        # Closing the scheduler ends the listener, after the last event.
        await listening
    lines.stopped(target)


async def _report_draining(scheduler: Scheduler, stop_asked: asyncio.Event, lines: RunLines) -> None:
    """Report how many tasks still run and how much time they have left, from the first signal until none is left."""
    await stop_asked.wait()
    until = time.monotonic() + scheduler.shutdown_grace.total_seconds()
    while count := await scheduler.count(status=Status.RUNNING):
        left = max(until - time.monotonic(), 0.0)
        lines.draining(count, left)
        # Look once more just before the time is up: this is how many tasks are cancelled.
        await asyncio.sleep(min(max(left - DRAIN_MARGIN, DRAIN_MARGIN), DRAIN_INTERVAL) if left else DRAIN_INTERVAL)


async def _cancel_when_asked(scheduler: Scheduler, cancel_asked: asyncio.Event) -> None:
    """Stop without a grace period. Tasks that the command leaves running instead would count a crash."""
    await cancel_asked.wait()
    await scheduler.stop(grace=0)


async def _listen(scheduler: Scheduler, lines: RunLines, said_store: asyncio.Event) -> None:
    events = scheduler.events()
    # The first line names the store.
    await said_store.wait()
    async for event in events:
        lines.event(event)


@contextlib.contextmanager
def _signals(
    ask_to_stop: Callable[[str], None], ask_to_cancel: Callable[[str], None], before_exit: Callable[[], None]
) -> Generator[None]:
    """Call the first function at the first signal and the second at the second; exit at once at the third."""
    loop = asyncio.get_running_loop()
    asks = [ask_to_stop, ask_to_cancel]

    def received(number: int, _frame: object = None) -> None:
        if not asks:
            before_exit()
            os._exit(128 + number)
        loop.call_soon_threadsafe(asks.pop(0), signal.Signals(number).name)

    # A closed terminal sends SIGHUP, unless the command was started with nohup.
    closed = [number for number in HANG_UP if signal.getsignal(number) is signal.SIG_DFL]
    before = {number: signal.signal(number, received) for number in (signal.SIGINT, signal.SIGTERM, *closed)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


# Showing


def _live_view(target: str) -> LiveView[RunState]:
    from taskmill.cli.views.live import LiveView
    from taskmill.cli.views.run import RunFrame

    return LiveView(RunFrame(target), below=True)


async def _show_start_and_view(
    scheduler: Scheduler,
    target: str,
    lines: RunLines,
    view: LiveView[RunState] | None,
    said_store: asyncio.Event,
    *,
    standby: bool,
) -> None:
    try:
        await _announce_start(scheduler, target, lines, said_store, standby=standby)
    finally:
        said_store.set()
    if view is not None:
        with view:
            await _show(scheduler, lines, view)


async def _announce_start(
    scheduler: Scheduler, target: str, lines: RunLines, said_store: asyncio.Event, *, standby: bool
) -> None:
    store = str((await scheduler.facts())["store"])
    looks = 0
    while not (snapshot := await scheduler.snapshot()).dispatching:
        looks += 1
        if standby and looks == 2:
            lines.standing_by(target, store)
            said_store.set()
        await asyncio.sleep(STANDBY_INTERVAL if standby and looks > 2 else LOOK_INTERVAL)
    # The snapshot has the slots of all nodes, the settings those of this one.
    slots = (await scheduler.settings())["max_concurrency"]
    lines.started(target, store, len(scheduler.handled_types), slots, snapshot)


async def _show(scheduler: Scheduler, lines: RunLines, view: LiveView[RunState]) -> None:
    """Redraw the state of the queue until cancelled."""
    from taskmill.cli.views.polling import QueuePoller
    from taskmill.cli.views.run import RunState

    poller = QueuePoller(scheduler)
    while True:
        try:
            state = RunState(await poller.read(), dict(lines.endings), lines.drain)
            # In a thread, because a blocked terminal must not block the event loop.
            await asyncio.to_thread(view.draw, state)
        except (StoreBusy, TaskNotFound):
            # The file is busy, or the task to explain is gone; try again after a longer pause.
            await asyncio.sleep(VIEW_INTERVAL)
        await asyncio.sleep(VIEW_INTERVAL)
