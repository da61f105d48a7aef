"""Slots in use."""

from __future__ import annotations

from collections import Counter

from taskmill.model.cluster import NOWHERE, Elsewhere
from taskmill.model.io_budget import IoBudget
from taskmill.model.task import domain_of
from taskmill.policy.io_room import IoLoad


class Load:
    """The slots in use by group and by domain, those of tasks about to start included, here and on other nodes."""

    def __init__(self) -> None:
        self.groups: Counter[str] = Counter()
        self.domains: Counter[str] = Counter()
        self.elsewhere: Elsewhere = NOWHERE
        self.io = IoLoad()
        """What the tasks on this node are expected to read, write and send."""
        self.io_eased = False
        """True if there may be room for more IO since :meth:`Backpressure.reopen` last looked."""
        self._eased: set[str] = set()
        self._eased_domains: set[str] = set()

    def in_group(self, group: str) -> int:
        """Return how many slots a group uses on all nodes."""
        return self.groups[group] + self.elsewhere.groups.get(group, 0)

    def in_domain(self, domain: str) -> int:
        """Return how many slots a domain uses on all nodes."""
        return self.domains[domain] + self.elsewhere.domains.get(domain, 0)

    def now_elsewhere(self, elsewhere: Elsewhere) -> None:
        """Note what other nodes use now."""
        before, self.elsewhere = self.elsewhere, elsewhere
        self._eased |= {group for group, _ in before.groups.items() ^ elsewhere.groups.items()}
        self._eased_domains |= {domain for domain, _ in before.domains.items() ^ elsewhere.domains.items()}

    def begin(self, group: str, type: str, budget: IoBudget | None = None) -> None:
        """Take a slot."""
        self.groups[group] += 1
        self.domains[domain_of(type)] += 1
        if budget is not None:
            self.io.add(budget)

    def end(self, group: str, type: str, budget: IoBudget | None = None) -> None:
        """Give a slot back."""
        self.hand_on(group, type, budget)
        self.io_eased = self.io_eased or budget is not None
        self._eased.add(group)
        self._eased_domains.add(domain_of(type))

    def hand_on(self, group: str, type: str, budget: IoBudget | None = None) -> None:
        """Give a slot back that the same task takes again at once: it goes from the plan to the attempt."""
        if budget is not None:
            self.io.remove(budget)
        self.groups[group] -= 1
        if not self.groups[group]:
            del self.groups[group]
        self.domains[domain_of(type)] -= 1

    def take_eased_groups(self) -> set[str]:
        """Return the groups that gave slots back since the last call."""
        eased, self._eased = self._eased, set()
        return eased

    def take_eased_domains(self) -> set[str]:
        """Return the domains that gave slots back since the last call."""
        eased, self._eased_domains = self._eased_domains, set()
        return eased
