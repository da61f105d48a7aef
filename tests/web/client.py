"""A client of the API that checks every answer against the description."""

from __future__ import annotations

from functools import cache
from typing import Any

import httpx
import jsonschema

from taskmill.web import Dashboard
from taskmill.web.description import description
from taskmill.web.routes import find

TOKEN = "a-token-for-tests-0123456789"
BEARER = {"authorization": f"Bearer {TOKEN}"}
HOST = "http://127.0.0.1:8040"
SAME_ORIGIN = {"origin": HOST, "sec-fetch-site": "same-origin"}


def over(page: Dashboard, **headers: str) -> httpx.AsyncClient:
    """Return a client that talks to the application without a server."""
    transport = httpx.ASGITransport(app=page)
    return httpx.AsyncClient(transport=transport, base_url=HOST, headers=headers)


@cache
def _validator(answer: str) -> jsonschema.Draft202012Validator:
    document = description()
    schema = {"$ref": f"#/components/schemas/{answer}", "components": document["components"]}
    return jsonschema.Draft202012Validator(schema)


def checked(response: httpx.Response, answer: str) -> Any:
    """Return the JSON of an answer after checking it against the schema of this name."""
    assert response.headers["content-type"] == "application/json", response.text
    assert response.headers["cache-control"] == "no-store"
    document = response.json()
    _validator(answer).validate(document)
    return document


class Api:
    """Calls the API as a program with the token; every answer must be as described."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self.client = client

    async def get(self, path: str, **query: Any) -> Any:
        response = await self.client.get(f"/api/{path}", params=query, headers=BEARER)
        return self._checked("GET", path, response)

    async def post(self, path: str, body: Any = None) -> Any:
        response = await self.client.post(f"/api/{path}", json=body, headers=BEARER)
        return self._checked("POST", path, response)

    def _checked(self, method: str, path: str, response: httpx.Response) -> Any:
        assert response.status_code == 200, response.text
        return checked(response, find(method, f"api/{path}").route.answer.__name__)

    async def refused(self, status: int, method: str, path: str, **settings: Any) -> dict[str, str]:
        """Send a request that must be refused, and return the problem."""
        settings.setdefault("headers", BEARER)
        response = await self.client.request(method, f"/api/{path}", **settings)
        assert response.status_code == status, response.text
        problem: dict[str, str] = checked(response, "Problem")
        return problem
