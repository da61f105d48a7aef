"""A process with one cron task on a real clock, to be killed: ``cron_victim FILE EXPRESSION SECONDS``.

It prints what happens, one event per line: ``initialized``, ``start``, ``end``, or the error that kept it
from starting.
"""

from __future__ import annotations

import asyncio
import sys

from taskmill import TaskmillError
from taskmill.cron import CronScheduler


def say(word: str) -> None:
    sys.stdout.write(word + "\n")
    sys.stdout.flush()


async def main(file: str, expression: str, seconds: float) -> None:
    async def work() -> None:
        say("start")
        await asyncio.sleep(seconds)
        say("end")

    cron = CronScheduler(file)
    try:
        await cron.initialize([("poison", expression, work, 3600)])
    except TaskmillError as wrong:
        say(type(wrong).__name__)
        return
    say("initialized")
    # The reader closes our input when it has seen enough.
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await cron.stop()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], float(sys.argv[3])))
