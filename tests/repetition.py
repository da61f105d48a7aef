"""How often laws are tried with random choices.

``TASKMILL_REPEAT=10`` tries ten times as many seeds as a normal run; the first ones are the same in every run.
"""

from __future__ import annotations

import os

REPEAT = int(os.environ.get("TASKMILL_REPEAT", "1"))


def seeds(count: int) -> range:
    """Return the seeds of a law that a normal run tries ``count`` times."""
    return range(count * REPEAT)
