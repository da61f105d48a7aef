"""Telling the store what a plan minds, where other nodes may have started something meanwhile."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from taskmill.model.cluster import Admission, Start
from taskmill.model.task_name import domain_of
from taskmill.runtime.candidates import Pick
from taskmill.runtime.load import Load
from taskmill.runtime.picking import Picker


def admission(picks: Sequence[Pick], picker: Picker, load: Load, slots: int) -> Admission:
    """The plan to start these, with the limits that it was made by."""
    rules = picker.rules
    groups = Counter(pick.group for pick in picks)
    domains = Counter(domain_of(pick.type) for pick in picks)
    claims = None
    if rules.is_shared:
        claims = {
            group: claim._replace(waiting=claim.waiting + groups[group])
            for group, claim in picker.shares.asked().items()
        }
    return Admission(
        starts=[Start(pick.id, pick.group, pick.type, pick.by_turn) for pick in picks],
        planned=load.elsewhere,
        groups=load.groups - groups,
        domains=load.domains - domains,
        caps={group: cap for group in groups if (cap := rules.group(group).cap) is not None},
        domain_caps={domain: cap for domain in domains if (cap := rules.domain_cap(domain)) is not None},
        claims=claims,
        slots=slots,
    )
