"""``taskmill run``: dispatch a scheduler of the user's own code until a signal says stop.

The first SIGINT or SIGTERM stops gracefully; the second ends the process at once, which costs nothing but the
attempts under way: they run again.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Callable, Generator, Mapping
from typing import TYPE_CHECKING

from taskmill import Scheduler, Snapshot, StoreBusy, TaskNotFound
from taskmill.cli import machine_output, screen, words
from taskmill.cli.refusal import DONE
from taskmill.cli.tally import Tally
from taskmill.cli.target import find_scheduler
from taskmill.events import (
    Event,
    EventsMissed,
    GroupAllocationChanged,
    GroupEvent,
    GroupPaused,
    GroupResumed,
    GroupWeightChanged,
    TaskCompleted,
    TaskDeadLettered,
    TaskEvent,
    TaskFailed,
    TaskProgressed,
)

if TYPE_CHECKING:
    from taskmill.cli.run_view import RunView

SUMMARY = "Run the tasks of a scheduler in your code, until SIGINT or SIGTERM"

LOOK_INTERVAL = 0.05
STANDBY_INTERVAL = 1.0
VIEW_INTERVAL = 0.5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("target", metavar="MODULE:SCHEDULER", help="such as app.tasks:scheduler")
    parser.add_argument("--standby", action="store_true", help="if another one dispatches, wait and take over")
    parser.add_argument("--verbose", action="store_true", help="a line for each event")
    parser.add_argument("--plain", action="store_true", help="without the live view that terminals get")


def execute(arguments: argparse.Namespace) -> int:
    scheduler = find_scheduler(arguments.target)
    _log_failures()
    voice = _JsonVoice() if arguments.json else _Voice(verbose=arguments.verbose)
    is_live = not arguments.json and not arguments.plain and screen.is_terminal() and screen.has_rich()
    asyncio.run(_run(scheduler, arguments.target, voice, standby=arguments.standby, is_live=is_live))
    return DONE


def _log_failures() -> None:
    """Failures go to the log on stderr, unless the module has set up logging in its own way."""
    if not logging.getLogger().hasHandlers():
        logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s")
        logging.getLogger("taskmill").setLevel(logging.INFO)


async def _run(scheduler: Scheduler, target: str, voice: _Voice, *, standby: bool, is_live: bool) -> None:
    stop_asked = asyncio.Event()
    view = _live_view(target) if is_live else None

    def ask_to_stop(name: str) -> None:
        voice.stopping(name)
        stop_asked.set()

    with _signals(ask_to_stop, before_exit=view.abandon if view else lambda: None):
        async with scheduler:
            listening = asyncio.create_task(_listen(scheduler, voice))
            running = asyncio.create_task(scheduler.run(standby=standby))
            stop_wanted = asyncio.create_task(stop_asked.wait())
            telling = asyncio.create_task(_tell(scheduler, target, voice, view, standby=standby))
            try:
                await asyncio.wait([running, stop_wanted], return_when=asyncio.FIRST_COMPLETED)
                await scheduler.stop()
                await running
            finally:
                telling.cancel()
                stop_wanted.cancel()
                await asyncio.wait([telling, stop_wanted])
        # Closing the scheduler ends the listener, after the last event.
        await listening
    voice.stopped(target)


def _live_view(target: str) -> RunView:
    from taskmill.cli.run_view import RunView

    return RunView(target)


async def _tell(scheduler: Scheduler, target: str, voice: _Voice, view: RunView | None, *, standby: bool) -> None:
    await _announce_start(scheduler, target, voice, standby=standby)
    if view is not None:
        with view:
            await _show(scheduler, voice, view)


async def _announce_start(scheduler: Scheduler, target: str, voice: _Voice, *, standby: bool) -> None:
    looks = 0
    while not (picture := await scheduler.snapshot()).dispatching:
        looks += 1
        if standby and looks == 2:
            voice.standing_by(target)
        await asyncio.sleep(STANDBY_INTERVAL if standby and looks > 2 else LOOK_INTERVAL)
    voice.started(target, picture)


async def _show(scheduler: Scheduler, voice: _Voice, view: RunView) -> None:
    """Until it is cancelled."""
    from taskmill.cli.outlook import Lookout

    lookout = Lookout(scheduler)
    while True:
        try:
            running, outlook = await lookout.running(), await lookout.outlook()
            await asyncio.to_thread(view.draw, running, outlook, dict(voice.endings))
        except (StoreBusy, TaskNotFound):
            # The file was busy, or what was asked about is gone already: the next look is soon.
            await asyncio.sleep(VIEW_INTERVAL)
        await asyncio.sleep(VIEW_INTERVAL)


async def _listen(scheduler: Scheduler, voice: _Voice) -> None:
    async for event in scheduler.events():
        voice.heard(event)


@contextlib.contextmanager
def _signals(ask_to_stop: Callable[[str], None], before_exit: Callable[[], None]) -> Generator[None]:
    """The first signal asks, the second insists."""
    loop = asyncio.get_running_loop()
    asked = False

    def received(number: int, _frame: object = None) -> None:
        nonlocal asked
        if asked:
            before_exit()
            os._exit(128 + number)
        asked = True
        loop.call_soon_threadsafe(ask_to_stop, signal.Signals(number).name)

    before = {number: signal.signal(number, received) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Voice:
    """Tells a person about the start and the end, and with ``verbose`` about everything in between."""

    def __init__(self, *, verbose: bool) -> None:
        self._verbose = verbose
        self._tally = Tally()

    @property
    def endings(self) -> Mapping[str, int]:
        """What has ended here so far."""
        return self._tally.endings

    def started(self, target: str, picture: Snapshot) -> None:
        screen.say(f"{target} is dispatching (process {os.getpid()}); Ctrl-C stops it")
        if paused := words.paused(picture):
            # Or whoever looks at a still screen would search for the reason elsewhere.
            screen.say(f"paused: {paused}")

    def standing_by(self, target: str) -> None:
        screen.say(f"{target} is standing by: another scheduler dispatches this file")

    def stopping(self, name: str) -> None:
        screen.say(f"{name}: stopping once running tasks have ended; a second signal exits at once")

    def stopped(self, target: str) -> None:
        screen.say(f"{target} has stopped; ended here: {words.counted(self._tally.endings)}")

    def heard(self, event: Event) -> None:
        self._tally.hear(event)
        if self._verbose:
            screen.say(f"{event.at.astimezone():%H:%M:%S} {_sentence(event)}")


class _JsonVoice(_Voice):
    """Tells a program: one JSON object per line, every event."""

    def __init__(self) -> None:
        super().__init__(verbose=True)

    def started(self, target: str, picture: Snapshot) -> None:
        paused = {"scheduler": picture.paused, "domains": picture.paused_domains, "groups": picture.paused_groups}
        self._tell("started", target=target, process=os.getpid(), paused=paused)

    def standing_by(self, target: str) -> None:
        self._tell("standing_by", target=target)

    def stopping(self, name: str) -> None:
        self._tell("stopping", signal=name)

    def stopped(self, target: str) -> None:
        self._tell("stopped", target=target, ended=self._tally.endings)

    def heard(self, event: Event) -> None:
        self._tally.hear(event)
        machine_output.print_line({"event": type(event).__name__, **machine_output.plain(event)})

    def _tell(self, event: str, **details: object) -> None:
        machine_output.print_line({"event": event, **details})


def _sentence(event: Event) -> str:
    if isinstance(event, EventsMissed):
        return f"{words.plural(event.count, 'event')} came too fast to be shown"
    if isinstance(event, GroupEvent):
        return _about_group(event)
    if not isinstance(event, TaskEvent):
        return type(event).__name__
    task = " ".join(filter(None, [f"task {event.task_id}", event.type, event.label or event.key]))
    match event:
        case TaskCompleted(duration=took):
            return f"{task}: completed in {words.duration(took)}"
        case TaskFailed(error=error, will_retry=True, retry_after=after):
            when = "at once" if not after else f"in {words.duration(after)}"
            return f"{task}: attempt failed, again {when}: {words.first_line(error)}"
        case TaskFailed(error=error):
            return f"{task}: failed: {words.first_line(error)}"
        case TaskDeadLettered():
            return f"{task}: no attempt is left, it is a dead letter"
        case TaskProgressed(progress=progress):
            return f"{task}: {words.progress(progress)}"
        case _:
            return f"{task}: {_verb(type(event).__name__)}"


def _about_group(event: GroupEvent) -> str:
    group = f"group {event.group}" if event.group else "tasks without a group"
    match event:
        case GroupPaused(until=until):
            return f"{group}: paused {words.until(until)}".rstrip()
        case GroupResumed():
            return f"{group}: resumed"
        case GroupWeightChanged(previous_weight=before, new_weight=now):
            return f"{group}: weight {now:g}, was {before:g}"
        case GroupAllocationChanged(previous_slots=before, new_slots=now, reason=reason):
            return f"{group}: share {words.plural(now, 'slot')}, was {before:,} ({words.spoken(reason)})"
        case _:
            return f"{group}: {type(event).__name__}"


def _verb(kind: str) -> str:
    """``TaskDispatched`` → ``dispatched``."""
    return "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in kind.removeprefix("Task")).strip()
