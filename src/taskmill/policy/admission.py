"""Decide which planned starts a cluster still has room for.

A node plans with a view of the other nodes that may be old. The claiming transaction knows what really runs. Planned
tasks start in their order as far as the real numbers allow; the rest waits for another plan.

Laws: no start exceeds the permits of a rate limit; if the view has not changed, all tasks with permits start; otherwise
the starts exceed no cap and no share, whatever the other nodes have started meanwhile; a task that may exceed the share
of its group still obeys caps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from taskmill.model.cluster import Admission, Demand, Elsewhere, Start
from taskmill.model.controls import Scope, ScopeKind
from taskmill.model.type_name import domain_of
from taskmill.policy.holds import at_cap, beyond_share
from taskmill.policy.shares import allocate


def admitted(plan: Admission, elsewhere: Elsewhere, permits: Mapping[Scope, int]) -> list[int]:
    """Return the ids of the tasks that may start; ``permits`` holds the permits left of the rate limits involved."""
    room = None if elsewhere == plan.planned else _Room(plan, elsewhere)
    left = dict(permits)
    allowed: list[int] = []
    for start in plan.starts:
        scopes = [
            scope for scope in (Scope(ScopeKind.GROUP, start.group), Scope(ScopeKind.TYPE, start.type)) if scope in left
        ]
        if all(left[scope] > 0 for scope in scopes) and (room is None or room.takes(start)):
            allowed.append(start.id)
            for scope in scopes:
                left[scope] -= 1
    return allowed


class _Room:
    """The slots taken in the whole cluster, updated as starts are admitted one by one."""

    def __init__(self, plan: Admission, elsewhere: Elsewhere) -> None:
        self._plan = plan
        self._groups = Counter(plan.groups)
        self._groups.update(elsewhere.groups)
        self._domains = Counter(plan.domains)
        self._domains.update(elsewhere.domains)
        self._limits = None if plan.demands is None else self._shares(plan.demands, elsewhere)

    def _shares(self, demands: Mapping[str, Demand], elsewhere: Elsewhere) -> dict[str, int]:
        # The plan does not know groups that have work on other nodes only, so their slots are not shared.
        unknown = sum(held for group, held in elsewhere.groups.items() if group not in demands)
        true = {group: demand._replace(running=self._groups[group]) for group, demand in demands.items()}
        slots = max(self._plan.slots + elsewhere.slots - unknown, 0)
        return {group: share.limit for group, share in allocate(slots, true).items()}

    def takes(self, start: Start) -> bool:
        group, domain = start.group, domain_of(start.type)
        running = self._groups[group]
        if (
            at_cap("group_cap", Scope(ScopeKind.GROUP, group), running, self._plan.caps.get(group))
            or at_cap(
                "domain_cap",
                Scope(ScopeKind.DOMAIN, domain),
                self._domains[domain],
                self._plan.domain_caps.get(domain),
            )
            or (
                self._limits is not None and start.by_share and beyond_share(group, running, self._limits.get(group, 0))
            )
        ):
            return False
        self._groups[group] += 1
        self._domains[domain] += 1
        return True
