"""A process with many open pages, as the page's script keeps them: each has a stream of events and overviews.

It runs until terminated, prints a line when all pages are open, and fails if a stream ends or brings no overview.
"""

from __future__ import annotations

import asyncio
import sys
from urllib.parse import urlsplit

PATIENCE = 30.0
"""Seconds within which each page must get an overview; the server sends one every few seconds."""


async def _connected(address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    parts = urlsplit(address)
    return await asyncio.open_connection(parts.hostname, parts.port, limit=1 << 22)


def _request(path: str, address: str, token: str) -> bytes:
    host = urlsplit(address).netloc
    return f"GET /{path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n\r\n".encode()


async def _follow(address: str, token: str, is_open: asyncio.Event) -> None:
    reader, writer = await _connected(address)
    writer.write(_request("api/events?overview=true", address, token))
    status = await reader.readline()
    if b" 200 " not in status:
        raise AssertionError(f"{status!r} instead of a stream")
    is_open.set()
    while True:
        async with asyncio.timeout(PATIENCE):
            await reader.readuntil(b"event: overview\n")


async def main(address: str, token: str, pages: int) -> None:
    opened = [asyncio.Event() for _ in range(pages)]
    following = [asyncio.create_task(_follow(address, token, each)) for each in opened]
    for each in opened:
        await each.wait()
    sys.stdout.write("open\n")
    sys.stdout.flush()
    await asyncio.gather(*following)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
