"""Whether a group has a task or settings: a name without both may be mistyped."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from taskmill import Scheduler


async def unknown_group(scheduler: Scheduler, name: str) -> str:
    """Return a remark if the group has no active or ended task and no settings; empty if it has."""
    if not name or name in (await scheduler.snapshot()).groups:
        return ""
    if await scheduler.count(group=name) or await scheduler.history(group=name, limit=1):
        return ""
    return f"no task of group {name} is known"
