"""Who holds how many slots now."""

from __future__ import annotations

from collections import Counter

from taskmill.model.cluster import NOWHERE, Elsewhere
from taskmill.model.io_budget import IoBudget
from taskmill.model.task_name import domain_of
from taskmill.policy.io_gate import IoLoad


class Load:
    """Slots taken by group and by domain, those of tasks about to start included; and what other nodes hold."""

    def __init__(self) -> None:
        self.groups: Counter[str] = Counter()
        self.domains: Counter[str] = Counter()
        self.elsewhere: Elsewhere = NOWHERE
        self.io = IoLoad()
        """What those tasks are expected to move."""
        self.io_eased = False
        """Whether there is room for more IO, perhaps, since somebody has looked."""
        self._eased: set[str] = set()
        self._eased_domains: set[str] = set()

    def in_group(self, group: str) -> int:
        """Slots that a group has taken, here and elsewhere."""
        return self.groups[group] + self.elsewhere.groups.get(group, 0)

    def in_domain(self, domain: str) -> int:
        return self.domains[domain] + self.elsewhere.domains.get(domain, 0)

    def now_elsewhere(self, elsewhere: Elsewhere) -> None:
        """Other nodes hold this now; what has changed is looked at again."""
        before, self.elsewhere = self.elsewhere, elsewhere
        self._eased |= {group for group, _ in before.groups.items() ^ elsewhere.groups.items()}
        self._eased_domains |= {domain for domain, _ in before.domains.items() ^ elsewhere.domains.items()}

    def begin(self, group: str, type: str, budget: IoBudget | None = None) -> None:
        self.groups[group] += 1
        self.domains[domain_of(type)] += 1
        if budget is not None:
            self.io.add(budget)

    def end(self, group: str, type: str, budget: IoBudget | None = None) -> None:
        self.hand_on(group, type, budget)
        self.io_eased = self.io_eased or budget is not None
        self._eased.add(group)
        self._eased_domains.add(domain_of(type))

    def hand_on(self, group: str, type: str, budget: IoBudget | None = None) -> None:
        """The slot goes from a plan to the task itself, which takes it in the same moment."""
        if budget is not None:
            self.io.remove(budget)
        self.groups[group] -= 1
        if not self.groups[group]:
            del self.groups[group]
        self.domains[domain_of(type)] -= 1

    def take_eased_groups(self) -> set[str]:
        """The groups that have given slots back since the last call."""
        eased, self._eased = self._eased, set()
        return eased

    def take_eased_domains(self) -> set[str]:
        """The domains that have given slots back since the last call."""
        eased, self._eased_domains = self._eased_domains, set()
        return eased
