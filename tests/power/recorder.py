"""The recorder: a library for ``LD_PRELOAD`` (``recorder.c``), built here, and the notes that a workload adds to it.

Decision 0023 says why it is written in C, and what compiles it on machines without a compiler.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).with_name("recorder.c")
ROOT = Path(__file__).parents[2]
SYNC_DELAY_US = 1500
"""Longest delay of a recorded sync: enough time for other threads to write meanwhile."""


def compiler() -> Sequence[str]:
    """Return the C compiler of this machine, or the one from PyPI that ``make`` installs where there is none."""
    for name in ("cc", "gcc", "clang"):
        if found := shutil.which(name):
            return [found]
    if find_spec("ziglang") is not None:
        return [sys.executable, "-m", "ziglang", "cc"]
    raise RuntimeError("no C compiler found; install one, or `pip install 'taskmill[compiler]'` into this environment")


@functools.cache
def library() -> Path:
    """Compile the recorder once for each version of its source, beside the interpreter that runs the tests."""
    version = hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:16]
    built = Path(sys.prefix) / f"power-recorder-{version}.so"
    if not built.exists():
        # Several test processes may build it at once: each writes its own file, and the last rename wins.
        scratch = built.with_suffix(f".{os.getpid()}")
        command = [*compiler(), "-shared", "-fPIC", "-O2", "-o", str(scratch), str(SOURCE), "-ldl", "-lpthread"]
        compiled = subprocess.run(command, check=False, capture_output=True, text=True)
        if compiled.returncode:
            raise RuntimeError(f"{' '.join(command)} failed: {compiled.stderr}")
        scratch.replace(built)
    return built


def environment(folder: Path, recording: Path, *, delay_us: int = SYNC_DELAY_US, fail: str = "") -> dict[str, str]:
    """Return the environment in which a process is recorded; ``fail`` is the sync that fails, as ``"-wal:7"``."""
    return {
        **os.environ,
        "LD_PRELOAD": str(library()),
        "TASKMILL_POWER_ROOT": os.path.realpath(folder),
        "TASKMILL_POWER_LOG": str(recording),
        "TASKMILL_POWER_DELAY": str(delay_us),
        "TASKMILL_POWER_FAIL": fail,
        "PYTHONPATH": str(ROOT),
    }


class Notes:
    """Notes of a recorded process, in order with its writes. In any other process they are dropped."""

    def __init__(self) -> None:
        self._write = getattr(ctypes.CDLL(None), "taskmill_power_note", None)

    def write(self, fact: str, **details: Any) -> None:
        if self._write is not None:
            words = json.dumps({"fact": fact, **details}).encode()
            self._write(words, ctypes.c_size_t(len(words)))
