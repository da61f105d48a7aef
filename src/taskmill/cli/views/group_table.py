"""The groups of a snapshot as rows and columns, and the headlines above them.

A column without any value is left out: if no group has a cap, there is no column of caps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from taskmill import GroupSnapshot, Snapshot
from taskmill.cli import cells, text

NUMBERS = frozenset({"weight", "min", "cap", "rate", "share", "running", "waiting"})


@dataclass(frozen=True)
class GroupTable:
    """``rows`` has a row for each of ``groups``; ``total`` adds up all groups, including the ``hidden`` ones."""

    headings: Sequence[str]
    groups: Sequence[GroupSnapshot]
    rows: Sequence[Sequence[str]]
    total: Sequence[str]
    hidden: int


def group_table(snapshot: Snapshot, most: int | None = None) -> GroupTable:
    """Return the groups by name; if there are more than ``most``, only the busiest ones."""
    groups = sorted(snapshot.groups.values(), key=_by_name)
    shown = groups if most is None or len(groups) <= most else _busiest(groups, most)
    columns = _columns(shown, is_shared=snapshot.is_shared)
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
        total=[total if isinstance(total := sums.get(name, ""), str) else f"{total:,}" for name in columns],
        hidden=len(groups) - len(shown),
    )


def _busiest(groups: Sequence[GroupSnapshot], most: int) -> list[GroupSnapshot]:
    ranked = sorted(groups, key=lambda group: (-group.running, -group.pending, group.name))
    return sorted(ranked[:most], key=_by_name)


def _by_name(group: GroupSnapshot) -> list[tuple[int, str]]:
    return cells.natural(group.name)


def headlines(snapshot: Snapshot) -> Iterator[str]:
    """Return how the slots are divided, then what holds all or some tasks back."""
    slots = text.plural(snapshot.max_concurrency, "slot")
    if snapshot.is_shared:
        yield f"{slots}, shared by weight"
    else:
        yield f"{slots}, the most urgent task first: no group has a weight or a minimum"
    if snapshot.paused:
        yield "the scheduler is paused: nothing starts"
    for name in snapshot.paused_domains:
        yield f"domain {name} is paused"
    if snapshot.pressure:
        yield f"pressure: {text.pressure_elsewhere(snapshot)}"
    if not snapshot.has_dispatcher:
        yield "nothing dispatches this file now; slots and settings are the last ones known"


def _columns(groups: Sequence[GroupSnapshot], *, is_shared: bool) -> dict[str, list[str]]:
    columns = {"group": [text.group_name(group.name) for group in groups]}
    if is_shared:
        columns["weight"] = [f"{group.weight:g}" for group in groups]
    optional = {
        "min": [f"{group.min_slots:,}" if group.min_slots else "-" for group in groups],
        "cap": ["-" if group.cap is None else f"{group.cap:,}" for group in groups],
        "rate": ["-" if group.rate is None else text.rate(group.rate) for group in groups],
    }
    columns |= {name: cells for name, cells in optional.items() if any(cell != "-" for cell in cells)}
    if is_shared:
        columns["share"] = [f"{group.slots:,}" for group in groups]
    columns["running"] = [f"{group.running:,}" for group in groups]
    columns["waiting"] = [f"{group.pending:,}" for group in groups]
    columns["next"] = [_next(group) for group in groups]
    return columns


def _next(group: GroupSnapshot) -> str:
    """Return the priority of the next task of the group, or ``paused``."""
    if group.paused:
        return f"paused {text.until(group.paused_until)}".rstrip()
    return "-" if group.next_priority is None else text.priority_level(group.next_priority)


def settings(group: GroupSnapshot) -> str:
    """Return the settings of a group: ``weight 3, cap 4, minimum 1, rate 10/s``."""
    parts = [
        f"weight {group.weight:g}",
        "no cap" if group.cap is None else f"cap {group.cap:,}",
        f"minimum {group.min_slots:,}" if group.min_slots else "no minimum",
        "no rate limit" if group.rate is None else f"rate {text.rate(group.rate)}",
    ]
    return ", ".join(parts)
