"""The parent's side: starting, reading and killing children."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.crash.journal import boot_time
from tests.warm_python import Popen

ROOT = Path(__file__).parents[2]
LONGEST = 60.0
"""Seconds after which a child that should have answered or ended is a failure."""

WORKERS_LIVE = 20.0
"""Seconds within which all worker processes of a dead child must have ended."""


class Child:
    """A process that runs ``program``. It prints words to a pipe; its errors go to a file."""

    program = "tests.crash.victim"

    def __init__(self, *, who: str, folder: Path, **order: Any) -> None:
        self.who = who
        self.killed_at: float | None = None
        self._errors = (folder / f"{who}.stderr").open("w+b")
        self._process = Popen(
            [
                sys.executable,
                "-X",
                "faulthandler",
                "-m",
                self.program,
                json.dumps({"who": who, **order}),
            ],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
        )
        assert self._process.stdout is not None
        self._output = self._process.stdout.fileno()
        self._heard = b""
        self._buried = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, wrong: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self.kill()
        self.wait()

    def tell(self, word: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(word.encode() + b"\n")
        self._process.stdin.flush()

    def hear(self, word: str, longest: float = LONGEST) -> bool:
        """Wait until the child prints ``word``; return False if it ends or ``longest`` passes before."""
        until = boot_time() + longest
        while f"{word}\n".encode() not in self._heard:
            left = until - boot_time()
            if left <= 0 or not self._listen(left):
                return False
        self._heard = self._heard.partition(f"{word}\n".encode())[2]
        return True

    def ends_within(self, seconds: float) -> bool:
        """Read until the child ends; return False if it is still alive after ``seconds``."""
        until = boot_time() + seconds
        while (left := until - boot_time()) > 0:
            if select.select([self._output], [], [], left)[0] and not self._listen(left):
                return True
        return False

    def _listen(self, longest: float) -> bool:
        """Read what the child prints; return False at the end of its output or after ``longest``."""
        if not select.select([self._output], [], [], longest)[0]:
            return False
        said = os.read(self._output, 65536)
        self._heard += said
        return bool(said)

    def kill(self) -> None:
        self.killed_at = boot_time()
        self._process.send_signal(signal.SIGKILL)

    def wait(self) -> int:
        """Return how the child ended: an exit code, or minus the signal that ended it.

        Its worker processes share its output, and they hold the right to dispatch while they live. The output ends when
        the last of them has ended, which must be soon.
        """
        code = self._process.wait(LONGEST)
        if not self._buried:
            self._buried = True
            assert self.ends_within(WORKERS_LIVE), f"worker processes of {self.who} live on without it"
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None and not stream.closed:
                try:
                    stream.close()
                except BrokenPipeError:
                    continue
        self._errors.close()
        return code

    def complaint(self) -> str:
        return Path(self._errors.name).read_text(encoding="utf-8", errors="replace")


def was_killed(code: int) -> bool:
    return code == -signal.SIGKILL
