"""A scheduler with its page on a loopback port, in a separate thread, and a Chromium to open it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import socket
import threading
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import pytest
import uvicorn
from playwright.sync_api import Browser, Page, Request, Response, expect, sync_playwright
from starlette.applications import Starlette
from starlette.routing import Mount

from taskmill import Context, Domain, GiveUp, Retry, Scheduler
from taskmill.events import TaskDispatched
from taskmill.web import Dashboard

R = TypeVar("R")

PATIENCE = 30.0
expect.set_options(timeout=PATIENCE * 1000)
WITHOUT = (
    # Two pages behind the address field, which is never seen. Each window loads them: half of Chromium's CPU.
    "WebUIOmniboxPopup",
    "WebUIOmniboxAimPopup",
    # Chromium reads the last list only. These are in the list of Playwright and would apply to this page.
    "HttpsUpgrades",
    "MediaRouter",
    "NetworkTimeServiceQuerying",
    "OptimizationHints",
    "PaintHolding",
    "PreconnectToSearch",
    "ThirdPartyStoragePartitioning",
)
ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    f"--disable-features={','.join(WITHOUT)}",
)

sync = Domain("sync")


@sync.task
async def upload(path: str) -> int:
    return len(path)


@sync.task
async def watch(ctx: Context, folder: str) -> None:
    """Run until cancelled."""
    ctx.progress.of(1, 4, f"watching {folder}")
    await asyncio.Event().wait()


@sync.task
async def watch_both(ctx: Context, first: str, second: str) -> None:
    """Spawn two children that run until cancelled."""
    await ctx.spawn_many([watch.prepare(first), watch.prepare(second)])


@sync.task
async def restore(path: str) -> None:
    raise GiveUp(f"404 {path} is gone")


@sync.task(retry=Retry.none())
async def replicate(path: str) -> None:
    raise ConnectionError(f"no route to the second region for {path}")


def chromium() -> str | None:
    """Return the Chromium of this machine; ``TASKMILL_CHROMIUM`` names another one."""
    names = (os.environ.get("TASKMILL_CHROMIUM", ""), "chromium", "chromium-browser", "google-chrome")
    return next((found for name in names if name and (found := shutil.which(name))), None)


@contextlib.contextmanager
def launched() -> Generator[Browser]:
    """Start the Chromium of this machine; it downloads nothing and contacts no other host."""
    found = chromium()
    if found is None:
        pytest.skip("no Chromium on this machine: install one, or name it in TASKMILL_CHROMIUM")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=[*ARGUMENTS])
        try:
            yield browser
        finally:
            browser.close()


class Site:
    """The page of a store, served until the ``with`` block ends. Verbs of the scheduler run through ``do``."""

    def __init__(
        self,
        store: Path | str,
        *,
        port: int = 0,
        below: str = "",
        token: str = "a-token-for-tests",
        read_only: bool = False,
        dispatches: bool = True,
        domains: tuple[Domain, ...] = (sync,),
        **settings: Any,
    ) -> None:
        self._store = str(store)
        self._below = below
        self._read_only = read_only
        self._dispatches = dispatches
        self._settings = {"domains": domains, **settings}
        self.token = token
        self._socket = socket.create_server(("127.0.0.1", port), reuse_port=False)
        self.port: int = self._socket.getsockname()[1]
        self._loop = asyncio.new_event_loop()
        self._ready: Future[None] = Future()
        self._thread = threading.Thread(target=self._serve, name="site", daemon=True)
        self.scheduler: Scheduler

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}{self._below}/"

    @property
    def address_with_token(self) -> str:
        return f"{self.address}#token={self.token}"

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.result(PATIENCE)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive(), "the server did not stop"

    def do(self, verb: Coroutine[Any, Any, R]) -> R:
        """Run a coroutine on the loop of the scheduler and return its result."""
        return asyncio.run_coroutine_threadsafe(verb, self._loop).result(PATIENCE)

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._run())
        except BaseException as wrong:
            if self._ready.done():
                raise
            self._ready.set_exception(wrong)
        finally:
            self._socket.close()
            self._loop.close()

    async def _run(self) -> None:
        self._stop = asyncio.Event()
        async with contextlib.AsyncExitStack() as stack:
            self.scheduler = await stack.enter_async_context(Scheduler(self._store, shutdown_grace=0, **self._settings))
            if self._dispatches:
                await stack.enter_async_context(self.scheduler.running())
            page = Dashboard(
                self.scheduler,
                read_only=self._read_only,
                authorize=None,
                redact=None,
                allowed_hosts=["127.0.0.1"],
                token=self.token,
            )
            served = Starlette(routes=[Mount(self._below, app=page)]) if self._below else page
            server = uvicorn.Server(uvicorn.Config(served, log_level="critical", lifespan="off", ws="none"))
            serving = asyncio.create_task(server.serve(sockets=[self._socket]))
            self._ready.set_result(None)
            await self._stop.wait()
            page.end_streams()
            server.should_exit = True
            await serving


class Looker:
    """One tab, and a record of everything that must not happen: console errors, broken pages, requests elsewhere."""

    def __init__(self, browser: Browser, **settings: Any) -> None:
        self.context = browser.new_context(reduced_motion="reduce", **settings)
        self.page: Page = self.context.new_page()
        self.page.set_default_timeout(PATIENCE * 1000)
        self.wrong: list[str] = []
        self.allowed = ""
        self.expected_statuses: set[int] = set()
        self.page.on("console", lambda said: self._hear(said.type, said.text))
        self.page.on("pageerror", lambda error: self.wrong.append(f"error: {error}"))
        self.page.on("request", self._see)
        self.page.on("response", self._judge)

    def open(self, site: Site, view: str = "overview") -> Page:
        """Sign in with the token and show a view."""
        self.allowed = site.address
        self.page.goto(site.address_with_token)
        self.page.wait_for_selector(".side")
        self.show(view)
        return self.page

    def show(self, view: str) -> Page:
        self.page.evaluate("address => { location.hash = address; }", f"#/{view}")
        self.page.wait_for_selector(".view:not(:has(.waiting-card))")
        return self.page

    def close(self) -> None:
        self.context.close()
        assert self.wrong == []

    def _hear(self, kind: str, text: str) -> None:
        # Chromium itself writes a line for each refused or failed request; statuses are judged below.
        if kind in ("error", "warning") and "Failed to load resource" not in text:
            self.wrong.append(f"{kind}: {text}")

    def _see(self, request: Request) -> None:
        if not request.url.startswith(self.allowed):
            self.wrong.append(f"request to {request.url}")

    def _judge(self, response: Response) -> None:
        if response.status >= 400 and response.status not in self.expected_statuses:
            self.wrong.append(f"{response.status}: {response.url}")


Open = Callable[..., Looker]
"""Opens a tab with the settings of a browser context."""


def fill(site: Site) -> dict[str, int]:
    """Submit tasks that stay in their states: two run, some wait, some failed, one completed."""
    done = site.do(upload.options(label="done.jpg").submit("done.jpg"))
    site.do(done.result())
    gone = site.do(restore.options(label="gone.bak").submit("gone.bak"))
    lost = site.do(replicate.options(label="lost.bak").submit("lost.bak"))
    for handle in (gone, lost):
        site.do(handle.wait())
    running = [site.do(watch.options(label=f"folder-{n}", group="photos").submit(f"folder-{n}")) for n in range(2)]
    site.do(started(site, len(running)))
    waiting = [site.do(upload.options(label=f"{n}.jpg", group="backup", ttl=3600).submit(f"{n}.jpg")) for n in range(5)]
    return {"done": done.id, "gone": gone.id, "lost": lost.id, "running": running[0].id, "waiting": waiting[0].id}


async def started(site: Site, count: int) -> None:
    events = site.scheduler.events(TaskDispatched)
    try:
        while len((await site.scheduler.snapshot()).running) < count:
            await anext(events)
    finally:
        await events.aclose()
