"""The page mounted under a prefix in FastAPI and Starlette, and behind a proxy that adds one."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.routing import Mount

from taskmill.web import Dashboard
from tests.web.client import BEARER, HOST, SAME_ORIGIN, TOKEN
from tests.web.conftest import page_of
from tests.web.service import scheduler_of, send


def _fastapi(page: Dashboard) -> Any:
    app = FastAPI()
    app.mount("/admin/tasks", page)
    return app


def _starlette(page: Dashboard) -> Any:
    return Starlette(routes=[Mount("/admin", routes=[Mount("/tasks", app=page)])])


@pytest.mark.parametrize("mounted", [_fastapi, _starlette])
@pytest.mark.parametrize("proxy", ["", "/behind/proxy"])
async def test_the_page_works_under_any_prefix(tmp_path: Path, mounted: Any, proxy: str) -> None:
    async with scheduler_of(str(tmp_path / "tasks.db")) as scheduler:
        transport = httpx.ASGITransport(app=mounted(page_of(scheduler)), root_path=proxy)
        root = f"{proxy}/admin/tasks"
        async with httpx.AsyncClient(transport=transport, base_url=HOST) as client:
            assert (await client.get(f"{root}/")).headers["content-type"].startswith("text/html")
            assert (await client.get(f"{root}/main.js")).status_code == 200
            begun = await client.post(f"{root}/api/session", json={"token": TOKEN}, headers=SAME_ORIGIN)
            assert begun.status_code == 200
            assert f"Path={root}/;" in begun.headers["set-cookie"]
            overview = await client.get(f"{root}/api/overview")
            assert overview.status_code == 200
            handle = await send.options(run_after=60).submit("x")
            shown = await client.get(f"{root}/api/tasks/{handle.id}")
            assert shown.json()["task"]["id"] == handle.id
            name = quote("s3://prod/a", safe="")
            paused = await client.post(f"{root}/api/groups/{name}/pause", headers=SAME_ORIGIN)
            assert paused.json()["paused"]["groups"] == ["s3://prod/a"]
            assert (await client.get(f"{root}/api/nothing", headers=BEARER)).status_code == 404


async def test_the_address_without_a_slash_leads_to_the_page(tmp_path: Path) -> None:
    async with scheduler_of(str(tmp_path / "tasks.db")) as scheduler:
        transport = httpx.ASGITransport(app=_fastapi(page_of(scheduler)))
        async with httpx.AsyncClient(transport=transport, base_url=HOST, follow_redirects=True) as client:
            found = await client.get("/admin/tasks")
            assert found.status_code == 200
            assert found.url.path == "/admin/tasks/"


async def test_the_page_reads_beside_the_dispatcher_and_closes_with_it(tmp_path: Path) -> None:
    async with scheduler_of(str(tmp_path / "tasks.db")) as scheduler:
        assert await scheduler._reader() is scheduler, "without a dispatcher no separate reader is needed"
        async with scheduler.running():
            reader = await scheduler._reader()
            assert reader is not scheduler
            assert await scheduler._reader() is reader
            handle = await send.submit("x")
            await handle.wait()
            assert (await reader.get(handle.id)).state == "completed"
    assert not reader._is_open
