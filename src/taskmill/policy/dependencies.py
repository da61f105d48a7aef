"""Who waits for whom: what the ending of a task means for those that depend on it, and circles, which are refused.

Laws: a task that depends on others starts after all of them have ended; whatever their endings, it is released or it
ends, and never waits for a task that has ended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from taskmill.model.status import Ending, OnDependencyFailure

Answer = Literal["met", "fails", "fails alone"]


def answer_ending(ending: Ending, policy: OnDependencyFailure, *, contained: bool = False) -> Answer:
    """What a dependent does when a task it depends on has ended.

    ``fails alone`` means that its own dependents are not failed in turn; of such a task they hear that it is
    ``contained``.
    """
    if ending is Ending.COMPLETED or policy is OnDependencyFailure.IGNORE or contained:
        return "met"
    return "fails alone" if policy is OnDependencyFailure.FAIL else "fails"


def find_circle(edges: Mapping[int, Sequence[int]]) -> list[int] | None:
    """Nodes that wait for each other in a circle, in order, or ``None``."""
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
