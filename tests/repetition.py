"""How often laws are tried with random choices.

A normal run tries few seeds and examples of each law. ``TASKMILL_REPEAT=10`` tries ten times as many; the first seeds
are the same in every run. ``make laws`` runs the laws at length.
"""

from __future__ import annotations

import os

REPEAT = int(os.environ.get("TASKMILL_REPEAT", "1"))


def often(count: int) -> int:
    """Return how often to try a law that a normal run tries ``count`` times."""
    return count * REPEAT


def seeds(count: int) -> range:
    """Return the seeds of a law that a normal run tries ``count`` times."""
    return range(often(count))
