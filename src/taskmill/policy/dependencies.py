"""Decide what the ending of a task means for its dependents, and find dependency cycles, which are refused.

Laws: a dependent starts only after all its dependencies have ended; whatever their endings, it is released or it ends,
and it never waits for a task that has ended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from taskmill.model.status import Ending, OnDependencyFailure

Answer = Literal["met", "fails", "fails alone"]


def answer_ending(ending: Ending, policy: OnDependencyFailure, *, contained: bool = False) -> Answer:
    """Decide what happens to a dependent when one of its dependencies has ended.

    ``fails alone`` means that the dependent fails but its own dependents do not; for them this function is called with
    ``contained=True``.
    """
    if ending is Ending.COMPLETED or policy is OnDependencyFailure.IGNORE or contained:
        return "met"
    return "fails alone" if policy is OnDependencyFailure.FAIL else "fails"


def find_cycle(edges: Mapping[int, Sequence[int]]) -> list[int] | None:
    """Return the nodes of one cycle, in order, or ``None`` if there is none."""
    done: set[int] = set()
    for start in edges:
        path: list[int] = []
        on_path: set[int] = set()
        stack: list[tuple[int, bool]] = [(start, False)]
        while stack:
            node, leaving = stack.pop()
            if leaving:
                on_path.discard(path.pop())
                done.add(node)
            elif node in on_path:
                return path[path.index(node) :]
            elif node not in done:
                path.append(node)
                on_path.add(node)
                stack.append((node, True))
                stack.extend((following, False) for following in edges.get(node, ()))
    return None
