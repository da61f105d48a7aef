"""The evidence that a failed run keeps for its analysis: its seed, its files and its journal.

``TASKMILL_CRASH_SEED`` repeats the random choices, though not their timing; ``TASKMILL_CRASH_ROUNDS`` is the number
of rounds.
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SEED = int(os.environ.get("TASKMILL_CRASH_SEED", "0")) or random.SystemRandom().randrange(1, 10**9)


def rounds_or(default: int) -> int:
    return int(os.environ.get("TASKMILL_CRASH_ROUNDS", default))


@contextmanager
def kept_when_it_fails(folder: Path, seed: int) -> Iterator[Path]:
    """Yield a folder for the journal, in memory if possible: its syncs must not slow the children down."""
    memory = Path("/dev/shm")
    place = Path(tempfile.mkdtemp(dir=memory if memory.is_dir() else folder, prefix="taskmill-"))
    try:
        yield place / "journal"
    except BaseException:
        kept = Path(tempfile.mkdtemp(prefix=f"taskmill-crash-{seed}-"))
        shutil.copytree(folder, kept / "files")
        shutil.copytree(place, kept / "journal")
        print(f"\nTASKMILL_CRASH_SEED={seed} plays it again; everything is kept in {kept}")
        raise
    finally:
        shutil.rmtree(place)
