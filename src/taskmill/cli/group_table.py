"""The groups of a snapshot in rows and columns, and what to say above them.

A column in which no group has anything to say is left out: no caps, no column of caps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from taskmill import GroupSnapshot, Snapshot
from taskmill.cli import words

NUMBERS = frozenset({"weight", "min", "cap", "rate", "share", "running", "waiting"})


@dataclass(frozen=True)
class GroupTable:
    """``rows`` has a row for each of ``groups``; ``total`` is one more, over those that are ``hidden`` as well."""

    headings: Sequence[str]
    groups: Sequence[GroupSnapshot]
    rows: Sequence[Sequence[str]]
    total: Sequence[str]
    hidden: int


def group_table(picture: Snapshot, most: int | None = None) -> GroupTable:
    """By name. Where only the ``most`` can be shown, it is those that have the most to do."""
    groups = list(picture.groups.values())
    shown = groups if most is None or len(groups) <= most else _busiest(groups, most)
    columns = _columns(shown, is_shared=picture.is_shared)
    sums = {
        "group": "total",
        "share": sum(group.slots for group in groups),
        "running": sum(group.running for group in groups),
        "waiting": sum(group.pending for group in groups),
    }
    return GroupTable(
        headings=list(columns),
        groups=shown,
        rows=[list(row) for row in zip(*columns.values(), strict=True)],
        total=[said if isinstance(said := sums.get(name, ""), str) else f"{said:,}" for name in columns],
        hidden=len(groups) - len(shown),
    )


def _busiest(groups: Sequence[GroupSnapshot], most: int) -> list[GroupSnapshot]:
    ranked = sorted(groups, key=lambda group: (-group.running, -group.pending, group.name))
    return sorted(ranked[:most], key=lambda group: group.name)


def headlines(picture: Snapshot) -> Iterator[str]:
    """How the slots are divided, then what keeps everything or some things from starting."""
    slots = words.plural(picture.max_concurrency, "slot")
    if picture.is_shared:
        yield f"{slots}, shared by weight"
    else:
        yield f"{slots}, the most urgent task first: no group has a weight or a minimum"
    if picture.paused:
        yield "the scheduler is paused: nothing starts"
    for name in picture.paused_domains:
        yield f"domain {name} is paused"
    if picture.pressure:
        yield f"pressure: {words.pressure_elsewhere(picture)}"
    if not picture.has_dispatcher:
        yield "nothing dispatches this file now; slots and settings are the last ones known"


def _columns(groups: Sequence[GroupSnapshot], *, is_shared: bool) -> dict[str, list[str]]:
    columns = {"group": [words.group_name(group.name) for group in groups]}
    if is_shared:
        columns["weight"] = [f"{group.weight:g}" for group in groups]
    optional = {
        "min": [f"{group.min_slots:,}" if group.min_slots else "-" for group in groups],
        "cap": ["-" if group.cap is None else f"{group.cap:,}" for group in groups],
        "rate": ["-" if group.rate is None else words.rate(group.rate) for group in groups],
    }
    columns |= {name: cells for name, cells in optional.items() if any(cell != "-" for cell in cells)}
    if is_shared:
        columns["share"] = [f"{group.slots:,}" for group in groups]
    columns["running"] = [f"{group.running:,}" for group in groups]
    columns["waiting"] = [f"{group.pending:,}" for group in groups]
    columns["next"] = [_next(group) for group in groups]
    return columns


def _next(group: GroupSnapshot) -> str:
    """The urgency of what it would start next; a paused group starts nothing."""
    if group.paused:
        return f"paused {words.until(group.paused_until)}".rstrip()
    return "-" if group.next_priority is None else words.priority_level(group.next_priority)


def settings(group: GroupSnapshot) -> str:
    """``weight 3, cap 4, minimum 1, rate 10/s``."""
    parts = [
        f"weight {group.weight:g}",
        "no cap" if group.cap is None else f"cap {group.cap:,}",
        f"minimum {group.min_slots:,}" if group.min_slots else "no minimum",
        "no rate limit" if group.rate is None else f"rate {words.rate(group.rate)}",
    ]
    return ", ".join(parts)
