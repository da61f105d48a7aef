"""The page: a dashboard in the browser, for a store and for the programs that use it.

``dashboard(scheduler)`` is an ASGI application to mount anywhere; ``taskmill web STORE`` serves it. It needs
``pip install "taskmill[web]"``. The API is described by ``web/routes.py``, from which the OpenAPI document is made:

- ``shapes.py`` has the queries, bodies and answers of the API, ``schemas.py`` turns them into JSON Schema, and
  ``description.py`` into OpenAPI.
- ``application.py`` takes a request through its steps: host, access, origin, parameters, answer.
- ``access.py`` decides who may read and who may change; ``guards.py`` has the rules for hosts, origins and headers.
- ``pages/`` has one module for each part of the page. ``backend.py`` is what they share: schedulers, cache, redaction.
- ``stream.py`` passes events on, with one listener for all pages.

Text from tasks is hostile: it leaves as JSON only, and no file of the page is made from it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Literal

if find_spec("starlette") is None or find_spec("uvicorn") is None:
    raise ImportError('taskmill.web needs starlette and uvicorn: pip install "taskmill[web]"')

from taskmill import Scheduler
from taskmill.web.application import Dashboard
from taskmill.web.backend import Redact
from taskmill.web.serving import PageServer, page_server

if TYPE_CHECKING:
    from starlette.requests import Request

__all__ = ["Dashboard", "PageServer", "dashboard", "page_server"]

Authorize = Callable[["Request"], "bool | Literal['read'] | Awaitable[bool | Literal['read']]"]


def dashboard(
    scheduler: Scheduler,
    *,
    read_only: bool = False,
    authorize: Authorize | None = None,
    redact: Redact | None = None,
    allowed_hosts: Iterable[str] | None = None,
) -> Dashboard:
    """Return the page of a scheduler as an ASGI application, to mount under any prefix.

    ``authorize(request)`` returns True for full access, ``"read"`` for reading only, and False for none; it may be a
    coroutine function. Without it, requests need the random token of the application, ``page.token``.
    ``redact(record)`` returns the record to show. ``allowed_hosts`` are the accepted names in the Host header; without
    it the outer application checks them.
    """
    return Dashboard(
        scheduler, read_only=read_only, authorize=authorize, redact=redact, allowed_hosts=allowed_hosts, token=None
    )
