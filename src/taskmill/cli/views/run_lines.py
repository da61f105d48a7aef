"""The lines that ``taskmill run`` prints about its start, its end and its events, for people or for programs."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import TypeVar

from taskmill import Snapshot
from taskmill.cli import output, text
from taskmill.events import (
    Event,
    EventsMissed,
    GroupAllocationChanged,
    GroupEvent,
    GroupPaused,
    GroupResumed,
    GroupWeightChanged,
    TaskCancelled,
    TaskCompleted,
    TaskDeadLettered,
    TaskEvent,
    TaskExpired,
    TaskFailed,
    TaskProgressed,
)

T = TypeVar("T")


class RunLines:
    """Prints sentences about the start and the end, and with ``verbose`` about each event."""

    drain: str = ""
    """How many tasks still run after the first signal, and for how long they may; empty before it."""

    def __init__(self, *, verbose: bool, is_live: bool = False) -> None:
        self._verbose = verbose
        self._is_live = is_live
        self._endings = EndingCounter()
        self._last_drain: object = None
        self._at_work = 0
        """The number of tasks that ran when their time was up, or at the last look before it."""

    @property
    def endings(self) -> Mapping[str, int]:
        """The number of tasks that ended in this process, by ending."""
        return self._endings.counts

    def started(self, target: str, store: str, types: int, slots: int, snapshot: Snapshot) -> None:
        means = f"{text.plural(types, 'task type')}, {text.plural(slots, 'slot')}"
        self._say(f"{target} is dispatching {store}: {means} (process {os.getpid()}); Ctrl-C stops it")
        if paused := text.paused(snapshot):
            # A pause explains why nothing starts.
            self._say(f"paused: {paused}")

    def standing_by(self, target: str, store: str) -> None:
        self._say(f"{target} is standing by: another scheduler dispatches {store}")

    def stopping(self, signal: str, grace: timedelta) -> None:
        self._say(
            f"{signal}: stopping; running tasks have {text.duration(grace)} to finish; a second signal cancels them"
        )

    def cancelling(self, signal: str) -> None:
        self._say(f"{signal}: cancelling running tasks; they run again later; a third signal exits at once")

    def draining(self, count: int, seconds: float) -> None:
        """Report that tasks still run: in the live view, else as a line that counts down on a terminal."""
        whole = math.ceil(seconds)
        if whole:
            self._at_work = count
            self.drain = f"draining {text.plural(count, 'task')}, {whole} s left"
        else:
            # Some of them may have ended already, because they were cancelled.
            count = self._at_work = max(count, self._at_work)
            self.drain = f"cancelling {text.plural(count, 'task')}"
        # Into a pipe or a log, time that passes is no reason for a line.
        key = (count, whole) if output.is_terminal() else (count, not whole)
        if key != self._last_drain and not self._is_live:
            self._last_drain = key
            self._say(self.drain)

    def stopped(self, target: str) -> None:
        self._say(f"{target} has stopped; ended here: {text.counted(self.endings)}")

    def event(self, event: Event) -> None:
        self._endings.count(event)
        if self._verbose:
            self._say(f"{event.at.astimezone():%H:%M:%S} {sentence(event)}")

    def _say(self, line: str) -> None:
        self._write(output.say, line)

    def _write(self, write: Callable[[T], None], value: T) -> None:
        """Write, unless the terminal or the pipe was closed: tasks then run and stop as usual."""
        try:
            write(value)
        except OSError:
            output.discard()


class RunJsonLines(RunLines):
    """Prints one JSON object per line, for every event."""

    def __init__(self) -> None:
        super().__init__(verbose=True)

    def started(self, target: str, store: str, types: int, slots: int, snapshot: Snapshot) -> None:
        paused = {"scheduler": snapshot.paused, "domains": snapshot.paused_domains, "groups": snapshot.paused_groups}
        means = {"store": store, "types": types, "slots": slots}
        self._print("started", target=target, process=os.getpid(), **means, paused=paused)

    def standing_by(self, target: str, store: str) -> None:
        self._print("standing_by", target=target, store=store)

    def stopping(self, signal: str, grace: timedelta) -> None:
        self._print("stopping", signal=signal, grace=grace)

    def cancelling(self, signal: str) -> None:
        self._print("cancelling", signal=signal)

    def draining(self, count: int, seconds: float) -> None:
        if count != self._last_drain:
            self._last_drain = count
            self._print("draining", tasks=count, seconds_left=round(seconds, 1))

    def stopped(self, target: str) -> None:
        self._print("stopped", target=target, ended=self.endings)

    def event(self, event: Event) -> None:
        self._endings.count(event)
        self._write(output.print_json_line, event)

    def _print(self, event: str, **details: object) -> None:
        self._write(output.print_json_line, {"event": event, **details})


class EndingCounter:
    """Counts endings by their events."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._failed_last: int | None = None

    def count(self, event: Event) -> None:
        match event:
            case TaskCompleted():
                self.counts["completed"] += 1
            case TaskFailed(will_retry=False):
                self.counts["failed"] += 1
                self._failed_last = event.task_id
            case TaskDeadLettered():
                # TaskFailed comes before it, except for a task that was quarantined.
                if event.task_id == self._failed_last:
                    self.counts["failed"] -= 1
                self.counts["dead_letter"] += 1
            case TaskCancelled():
                self.counts["cancelled"] += 1
            case TaskExpired():
                self.counts["expired"] += 1
            case _:
                pass


def sentence(event: Event) -> str:
    """Return what happened, in a few words."""
    if isinstance(event, EventsMissed):
        return f"{text.plural(event.count, 'event')} came too fast to be shown"
    if isinstance(event, GroupEvent):
        return _about_group(event)
    if not isinstance(event, TaskEvent):
        return type(event).__name__
    task = " ".join(filter(None, [f"task {event.task_id}", event.type, event.label or event.key]))
    match event:
        case TaskCompleted(duration=took):
            return f"{task}: completed in {text.duration(took)}"
        case TaskFailed(error=error, will_retry=True, retry_after=after):
            when = "at once" if not after else f"in {text.duration(after)}"
            return f"{task}: attempt failed, next attempt {when}: {text.first_line(error)}"
        case TaskFailed(error=error):
            return f"{task}: failed: {text.first_line(error)}"
        case TaskDeadLettered():
            return f"{task}: no attempt is left, it is a dead letter"
        case TaskProgressed(progress=progress):
            return f"{task}: {text.progress(progress)}"
        case _:
            return f"{task}: {_verb(type(event).__name__)}"


def _about_group(event: GroupEvent) -> str:
    group = f"group {event.group}" if event.group else "tasks without a group"
    match event:
        case GroupPaused(until=until):
            return f"{group}: paused {text.until(until)}".rstrip()
        case GroupResumed():
            return f"{group}: resumed"
        case GroupWeightChanged(previous_weight=before, new_weight=now):
            return f"{group}: weight {now:g}, was {before:g}"
        case GroupAllocationChanged(previous_slots=before, new_slots=now, reason=reason):
            return f"{group}: share {text.plural(now, 'slot')}, was {before:,} ({text.spoken(reason)})"
        case _:
            return f"{group}: {type(event).__name__}"


def _verb(kind: str) -> str:
    """Return ``dispatched`` for ``TaskDispatched``."""
    return "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in kind.removeprefix("Task")).strip()
