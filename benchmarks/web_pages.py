"""A process with many open pages: each follows events and reads the overview every two seconds, until terminated.

It prints a line when all pages are open.
"""

from __future__ import annotations

import asyncio
import sys
from urllib.parse import urlsplit

INTERVAL = 2.0


async def _connected(address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    parts = urlsplit(address)
    return await asyncio.open_connection(parts.hostname, parts.port, limit=1 << 22)


def _request(path: str, address: str, token: str) -> bytes:
    host = urlsplit(address).netloc
    return f"GET /{path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n\r\n".encode()


async def _follow(address: str, token: str, is_open: asyncio.Event) -> None:
    reader, writer = await _connected(address)
    writer.write(_request("api/events", address, token))
    await reader.readline()
    is_open.set()
    while await reader.read(1 << 16):
        """Take what comes."""


async def _look(address: str, token: str, wait: float) -> None:
    reader, writer = await _connected(address)
    await asyncio.sleep(wait)
    while True:
        writer.write(_request("api/overview", address, token))
        headers = await reader.readuntil(b"\r\n\r\n")
        length = next(line for line in headers.split(b"\r\n") if line.lower().startswith(b"content-length:"))
        await reader.readexactly(int(length.partition(b":")[2]))
        await asyncio.sleep(INTERVAL)


async def main(address: str, token: str, pages: int) -> None:
    opened = [asyncio.Event() for _ in range(pages)]
    following = [asyncio.create_task(_follow(address, token, each)) for each in opened]
    for each in opened:
        await each.wait()
    looking = [asyncio.create_task(_look(address, token, INTERVAL * n / pages)) for n in range(pages)]
    sys.stdout.write("open\n")
    sys.stdout.flush()
    await asyncio.gather(*following, *looking)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
