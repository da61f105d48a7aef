"""An invalid middleware fails the attempt with an error that names it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest

from taskmill import Context
from tests.runtime.around.test_middleware import as_async, as_thread, domain_of, ended, named


class Nameless:
    """A middleware without a name, which returns nothing."""

    def __call__(self, _ctx: Context) -> None: ...

    def __repr__(self) -> str:
        return "<Nameless>"


@contextlib.contextmanager
def synchronous(_ctx: Context) -> Any:
    yield


@pytest.mark.parametrize("make", [as_async, as_thread])
@pytest.mark.parametrize(
    ("middleware", "name", "returned"),
    [(synchronous, "synchronous", "_GeneratorContextManager"), (Nameless(), "<Nameless>", "NoneType")],
    ids=["synchronous", "nameless"],
)
async def test_a_middleware_that_returns_no_async_context_manager_is_named_by_the_error(
    make: Callable[..., Any], middleware: Any, name: str, returned: str
) -> None:
    calls: list[int] = []
    domain, task = domain_of(make(lambda: calls.append(1)))
    record = await ended(task, domains=[domain], middleware=[named("outer", []), middleware])
    assert record.state == "dead_letter"
    assert record.error is not None
    assert record.error.startswith(
        f"ConfigError: middleware {name} must return an async context manager, not {returned};"
    )
    assert "contextlib.asynccontextmanager" in record.error
    assert calls == []
