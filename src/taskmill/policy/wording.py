"""Format counts, spans, instants (in UTC), rates and sizes for people."""

from __future__ import annotations

from taskmill.model.durations import from_ms, whole_seconds
from taskmill.model.settings import RateLimit

SOON_MS = 10_000
"""An instant in whole seconds adds nothing to what is expected within this time."""


def plural(count: int, one: str, many: str) -> str:
    return f"{count:,} {one if count == 1 else many}"


def group_text(group: str) -> str:
    return f"group {group!r}" if group else "group of ungrouped tasks"


def rate_text(rate: RateLimit) -> str:
    units = {1000: "second", 60_000: "minute", 3_600_000: "hour"}
    return f"{rate.permits} per {units.get(rate.interval_ms, f'{rate.interval_ms / 1000:g} s')}"


def when_text(at: int, now: int) -> str:
    """Return ``in 3 min (2026-01-01 14:05:00 UTC)`` for the future, ``3 min ago`` for the past."""
    if at <= now:
        return "now" if at == now else f"{span_text(now - at)} ago"
    return f"in {span_text(at - now)} ({clock_text(at)})"


def expected_text(at: int, now: int) -> str:
    """Return an estimated instant as :func:`when_text` does, without digits that an estimate does not have."""
    if at <= now:
        return "now"
    is_soon = at - now < SOON_MS
    return f"in {rough_text(at - now)}" + ("" if is_soon else f" ({clock_text(at)})")


def rough_text(ms: int) -> str:
    """Return an estimated duration in tenths of a second at most: ``0.8 s``, ``12 s``, ``5 min 52 s``."""
    seconds = ms / 1000
    return f"{max(round(seconds, 1), 0.1):g} s" if seconds < 9.95 else whole_seconds(round(seconds))


def span_text(ms: int) -> str:
    """Return a duration as the command line writes it: ``1.5 s``, ``5 min 52 s``, ``2 d 3 h``."""
    seconds = ms / 1000
    return f"{seconds:.3g} s" if seconds < 59.95 else whole_seconds(round(seconds))


def clock_text(at: int) -> str:
    return f"{from_ms(at):%Y-%m-%d %H:%M:%S} UTC"


def bytes_text(amount: float) -> str:
    """Return text such as ``12.3 MB``, in decimal units, as disks and networks are labelled."""
    if amount < 1000:
        return f"{amount:.0f} B"
    for unit in ("kB", "MB", "GB", "TB"):
        amount /= 1000
        if amount < 999.5:
            return f"{amount:.3g} {unit}"
    return f"{amount / 1000:,.3g} PB"
