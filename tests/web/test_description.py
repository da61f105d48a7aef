"""The description matches the server: schemathesis sends requests that it allows and requests that it forbids."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from taskmill.web import page_server
from taskmill.web.description import description
from taskmill.web.routes import ROUTES
from tests.web.client import TOKEN
from tests.web.service import give_up, lose, scheduler_of, send

document = description()
OPERATIONS = [(path, method) for path, methods in document["paths"].items() for method in methods]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A page over a file with tasks in several states, in a separate thread."""
    path = tmp_path_factory.mktemp("described") / "tasks.db"
    ready, end = threading.Event(), threading.Event()
    found: list[str] = []

    async def serve() -> None:
        async with scheduler_of(str(path)) as scheduler, scheduler.running():
            await _fill()
            server = page_server(scheduler, port=0, token=TOKEN)
            async with server.running():
                found.append(server.address)
                ready.set()
                while not end.is_set():
                    await asyncio.sleep(0.05)

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    assert ready.wait(30)
    yield found[0]
    end.set()
    thread.join(30)


async def _fill() -> None:
    for handle in [await send.submit("a"), await lose.submit("b"), await give_up.submit("c")]:
        await handle.wait()
    await send.options(run_after=3600, ttl=7200, tags={"user": "bob"}).submit("later")
    await send.options(every=3600, key="hourly", run_after=3600).submit("hourly")


@pytest.fixture(scope="module")
def schema() -> Any:
    import schemathesis

    return schemathesis.openapi.from_dict(document)


@pytest.mark.parametrize(("path", "method"), [each for each in OPERATIONS if each[0] != "/api/events"])
def test_no_request_causes_a_server_error_and_answers_are_as_described(
    schema: Any, address: str, path: str, method: str
) -> None:
    """Not ``schema.parametrize``: it would build all requests while tests are collected, in each process of the run."""
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi import checks

    @settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
    @given(case=schema[path][method.upper()].as_strategy())
    def send(case: Any) -> None:
        response = case.call(base_url=address.rstrip("/"), headers={"Authorization": f"Bearer {TOKEN}"})
        conforms = [
            checks.status_code_conformance,
            checks.content_type_conformance,
            checks.response_schema_conformance,
        ]
        case.validate_response(response, checks=[not_a_server_error, *conforms])

    send()


def test_every_route_is_described_and_every_list_has_a_limit() -> None:
    described = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    assert {(route.method, f"/{route.path}") for route in ROUTES} <= described
    for name in ("tasks", "suggest", "groups", "schedules", "errors", "nodes"):
        parameters = document["paths"][f"/api/{name}"]["get"]["parameters"]
        (limit,) = [each["schema"] for each in parameters if each["name"] == "limit"]
        assert limit["maximum"] == 200, name


def test_the_reference_page_is_made_from_the_description() -> None:
    from tools.describe_web_api import PAGE, page

    assert Path(PAGE).read_text(encoding="utf-8") == page(), "run tools/describe_web_api.py"
