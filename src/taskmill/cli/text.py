"""Formats durations, instants, sizes, priorities and records for people, without control characters."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from taskmill import Ending, HistoryRecord, IoBudget, Priority, RateLimit, Snapshot, TaskProgress, TaskRecord
from taskmill.model.durations import whole_seconds

_PRIORITY_NAMES = {int(level): level.name.lower() for level in Priority}
_MOVES = {"disk_read": "read", "disk_write": "written", "net_rx": "received", "net_tx": "sent"}


def duration(value: timedelta | float) -> str:
    seconds = value.total_seconds() if isinstance(value, timedelta) else float(value)
    if seconds < 0:
        return f"-{duration(-seconds)}"
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    return whole_seconds(round(seconds))


def ago(at: datetime, now: datetime | None = None) -> str:
    """Return ``3 s ago`` or ``in 5 min``."""
    seconds = ((datetime.now(UTC) if now is None else now) - at).total_seconds()
    if abs(seconds) < 1:
        return "now"
    whole = round(abs(seconds))
    return f"{_coarse(whole)} ago" if seconds > 0 else f"in {_coarse(whole)}"


def soon(at: datetime) -> str:
    """Return ``in 5 min``: as :func:`ago`, in the largest unit only."""
    left = at - datetime.now(UTC)
    return f"in {rough(left)}" if left >= timedelta(seconds=1) else ago(at)


def _coarse(seconds: int) -> str:
    return f"{seconds} s" if seconds < 60 else duration(seconds)


def rough(value: timedelta) -> str:
    """Return a duration in its largest unit only: ``8 min``, where :func:`duration` has ``8 min 29 s``."""
    return " ".join(_coarse(round(value.total_seconds())).split()[:2])


def local_time(at: datetime) -> str:
    return f"{at.astimezone():%Y-%m-%d %H:%M:%S} ({ago(at)})"


def size(count: float) -> str:
    if count < 1000:
        return f"{count:.0f} B"
    for unit in ("kB", "MB", "GB"):
        count /= 1000
        if count < 999.5:
            return f"{count:.1f} {unit}" if count < 99.95 else f"{count:.0f} {unit}"
    return f"{count / 1000:.1f} TB"


def plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def counted(counts: Mapping[str, int]) -> str:
    """Return ``290 completed, 3 dead letter``, without zeros."""
    return ", ".join(f"{count:,} {spoken(word)}" for word, count in counts.items() if count) or "none"


def spoken(word: str) -> str:
    return word.replace("_", " ")


def priority_level(value: int) -> str:
    return _PRIORITY_NAMES.get(value, str(value))


def priority(record: TaskRecord | HistoryRecord) -> str:
    base, effective = priority_level(record.priority), priority_level(record.effective_priority)
    return base if base == effective else f"{base}, now {effective}"


def rate(limit: RateLimit) -> str:
    """Return ``10/s``, ``100/min`` or ``1/30s``: the syntax of ``--rate``, then any burst."""
    ms = limit.interval_ms
    unit = {1_000: "s", 60_000: "min", 3_600_000: "h", 86_400_000: "d"}.get(ms, f"{ms / 1000:g}s")
    burst = "" if limit.burst in (None, limit.permits) else f" burst {limit.burst:,}"
    return f"{limit.permits:,}/{unit}{burst}"


def group_name(name: str) -> str:
    return name or "(no group)"


def until(at: datetime | None, now: datetime | None = None) -> str:
    """Return ``until 18:30``, with the date if it is not today; empty if there is no end."""
    if at is None:
        return ""
    local, today = at.astimezone(), (datetime.now(UTC) if now is None else now).astimezone().date()
    return f"until {local:%H:%M}" if local.date() == today else f"until {local:%Y-%m-%d %H:%M}"


def paused(snapshot: Snapshot) -> str:
    """Return what is paused, in one line; empty if nothing is."""
    return ", ".join(_paused(snapshot))


def _paused(snapshot: Snapshot) -> Iterator[str]:
    if snapshot.paused:
        yield "the scheduler"
    for name in snapshot.paused_domains:
        yield f"domain {name}"
    for name in snapshot.paused_groups:
        end = until(snapshot.groups[name].paused_until)
        yield (f"group {name}" if name else "tasks without a group") + (f" {end}" if end else "")


def pressure(sources: Mapping[str, float]) -> str:
    """Return ``cpu 0.86, memory 0.40``, the highest first."""
    ranked = sorted(sources.items(), key=lambda source: (-source[1], source[0]))
    return ", ".join(f"{name} {value:.2f}" for name, value in ranked)


def pressure_elsewhere(snapshot: Snapshot) -> str:
    """Return the pressure that the dispatcher recorded, and what it means; empty while no task waits for it."""
    if not snapshot.pressure:
        return ""
    return f"{pressure(snapshot.pressure)} when last recorded; less urgent tasks wait for it to fall"


def io(moved: IoBudget | None) -> str:
    """Return ``12.0 MB read, 3.0 MB sent``; empty if no bytes are moved."""
    axes = {} if moved is None else moved.axes()
    return ", ".join(f"{size(amount)} {_MOVES[axis]}" for axis, amount in axes.items())


def progress(value: TaskProgress, *, has_ended: bool = False, with_fraction: bool = True) -> str:
    """Return fraction, bytes, rate, time left and message. An ended task has no time left."""
    parts: list[str] = []
    if value.fraction is not None and with_fraction:
        parts.append(f"{value.fraction:.0%}")
    if value.done_bytes is not None:
        total = "" if value.total_bytes is None else f" of {size(value.total_bytes)}"
        parts.append(f"{size(value.done_bytes)}{total}")
    if value.rate:
        parts.append(f"{size(value.rate)}/s")
    if value.eta and not has_ended:
        parts.append(f"{duration(value.eta)} left")
    if value.message:
        parts.append(value.message)
    return ", ".join(parts)


def ending(record: HistoryRecord) -> str:
    """Return ``completed in 3.2 s``, ``failed after 3.2 s`` or ``expired``."""
    name = spoken(record.ending)
    if record.duration is None:
        return name
    return f"{name} {'in' if record.ending is Ending.COMPLETED else 'after'} {duration(record.duration)}"


def subject(record: TaskRecord | HistoryRecord) -> str:
    """Return what distinguishes the task from others of its type: its label, key or payload."""
    if record.label or record.key:
        return record.label or record.key or ""
    return compact(record.payload) if record.payload else ""


def tags(given: Mapping[str, str]) -> str:
    return ", ".join(f"{name}={value}" for name, value in given.items())


def compact(value: Any) -> str:
    import json  # only payloads and saved values need it

    return json.dumps(value, ensure_ascii=False, separators=(", ", ": "))


def printable(text: str) -> str:
    """Return the text with control characters escaped: stored text must not control the terminal."""
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else _visible(character) for character in text)


def _visible(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def cut(text: str, width: int) -> str:
    """Return the text, cut off to a number of columns of a terminal; wide characters take two."""
    left = width
    for index, character in enumerate(text):
        left -= 2 if unicodedata.east_asian_width(character) in "WF" else 1
        if left < 1 and (left < 0 or index + 1 < len(text)):
            return f"{text[:index]}…"
    return text


def first_line(text: str) -> str:
    return text.strip().partition("\n")[0]
