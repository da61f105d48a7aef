"""The findings of ``taskmill doctor``, for programs: ``await findings(scheduler)``."""

from __future__ import annotations

from taskmill import Scheduler
from taskmill.cli.checks import Finding, judge_machine, machine_facts
from taskmill.cli.commands.doctor import examine, judge

__all__ = ["Finding", "findings"]


async def findings(scheduler: Scheduler, *, integrity: bool = False) -> list[Finding]:
    """Check the store of an open scheduler; with ``integrity``, also every page of a file, which takes seconds."""
    facts, dead = await examine(scheduler, integrity=integrity)
    return [*judge_machine(machine_facts()), *judge(facts, dead)]
