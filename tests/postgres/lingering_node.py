"""A node whose handler does not stop with its scheduler: ``lingering_node.py ADDRESS`` ends while the handler runs."""

from __future__ import annotations

import asyncio
import sys
import threading

from taskmill import Domain, Scheduler

domain = Domain("d")
begun = threading.Event()


@domain.task
def stuck() -> None:
    begun.set()
    threading.Event().wait()


async def main(address: str) -> None:
    async with Scheduler(address, domains=[domain], shutdown_grace=0) as scheduler, scheduler.running():
        await stuck.submit()
        await asyncio.to_thread(begun.wait)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
