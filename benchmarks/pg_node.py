"""A node of a cluster in a process of its own: ``python -m benchmarks.pg_node ADDRESS SLOTS``.

It prints ``ready``, begins at a line of its standard input and works until the next. Then it prints when its first
handler started and its last one ended, by the clock that all processes of a machine share.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time

from benchmarks.measuring import ROOT, child_environment
from taskmill import Domain, Scheduler

PAUSE = 0.005

domain = Domain("bench")
_moments: list[float] = []


@domain.task
async def pause(i: int) -> None:
    """Wait, as for an answer from another service."""
    _moments.append(time.monotonic())
    await asyncio.sleep(PAUSE)
    _moments.append(time.monotonic())


@domain.task
async def moment() -> float:
    """Return when it was started."""
    return time.monotonic()


class Node:
    """The process as its parent sees it."""

    def __init__(self, address: str, slots: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.pg_node", address, str(slots)],
            env=child_environment(),
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def wait_until_ready(self) -> None:
        if self._read() != "ready":
            raise RuntimeError("a node did not start")

    def begin(self) -> None:
        self._say("begin")
        if self._read() != "begun":
            raise RuntimeError("a node did not begin")

    def end(self) -> tuple[float, float]:
        """Return when its first handler started and its last one ended."""
        self._say("end")
        first, last = json.loads(self._read())
        self._process.wait()
        return first, last

    def kill(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def _say(self, word: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(word + "\n")
        self._process.stdin.flush()

    def _read(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


async def _work(address: str, slots: int) -> None:
    async with Scheduler(address, domains=[domain], max_concurrency=slots) as scheduler:
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        async with scheduler.running():
            print("begun", flush=True)
            await asyncio.to_thread(sys.stdin.readline)
    print(json.dumps([min(_moments, default=0.0), max(_moments, default=0.0)]), flush=True)


if __name__ == "__main__":
    asyncio.run(_work(sys.argv[1], int(sys.argv[2])))
