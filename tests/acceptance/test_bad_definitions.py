"""A meaningless option of a domain or a task type is refused when it is defined."""

from __future__ import annotations

import functools
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from taskmill import ConfigError, Context, Domain, Scheduler
from tests.acceptance.box import BAD_DURATIONS, NUL, SURROGATE, Parcel, Size, put, shown

pytestmark = pytest.mark.one_engine("it is refused before there is a store")

if TYPE_CHECKING:
    from decimal import NotThere  # type: ignore[attr-defined]  # pyright: ignore


# Options

BAD_DEFINITION_OPTIONS: list[tuple[str, object]] = [
    *((name, value) for name in ("ttl", "timeout") for value in BAD_DURATIONS),
    ("timeout", 0),
    *(("priority", value) for value in (-1, 256, True, 1.5, "high", None)),
    *(("group", value) for value in (5, True, NUL, SURROGATE)),
    *(("retry", value) for value in (3, None, "none")),
    *(("tags", value) for value in ({"k": 1}, {"k" * 65: "v"}, None, ["a"])),
    ("prioritty", 1),
    ("run_at", datetime(2030, 1, 1, tzinfo=UTC)),
    ("run_after", 1),
]


@pytest.mark.parametrize(
    ("name", "value"),
    [pytest.param(n, v, id=f"{n}-{shown(v)}-{i}") for i, (n, v) in enumerate(BAD_DEFINITION_OPTIONS)],
)
def test_a_wrong_option_of_a_domain_or_a_task_type_is_refused_by_name(name: str, value: Any) -> None:
    options: dict[str, Any] = {name: value}
    with pytest.raises(ConfigError, match=name):
        Domain("wrong", **options)
    domain = Domain("right")
    with pytest.raises(ConfigError, match=name):
        domain.task(**options)
    assert domain.types == {}


@pytest.mark.parametrize(
    ("name", "value"),
    [("key", ""), ("key", 5), ("key", NUL), ("on_duplicate", "replace"), ("run_in", "thread"), ("run_in", True)],
)
def test_a_wrong_option_of_a_task_type_is_refused_by_name(name: str, value: Any) -> None:
    options: dict[str, Any] = {name: value}
    with pytest.raises(ConfigError, match=name):
        Domain("right").task(**options)


@pytest.mark.parametrize("name", ["", "a::b", "::", None, 5, b"a", NUL, SURROGATE])
def test_names_of_domains_and_tasks_are_text_without_the_separator(name: Any) -> None:
    with pytest.raises(ConfigError, match="name"):
        Domain(name)
    if name is not None:
        with pytest.raises(ConfigError, match="name"):
            Domain("right").task(name=name)(len)


@pytest.mark.parametrize("state", [5, None])
def test_the_state_of_a_domain_and_a_scheduler_is_an_iterable(state: Any) -> None:
    with pytest.raises(ConfigError, match="state"):
        Domain("wrong", state=state)
    with pytest.raises(ConfigError, match="state"):
        Scheduler(state=state)


def test_two_domains_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigError, match="'twin'"):
        Scheduler(domains=[Domain("twin"), Domain("other"), Domain("twin")])


def test_two_tasks_of_one_name_are_refused() -> None:
    domain = Domain("twins")

    @domain.task
    async def work() -> None: ...

    with pytest.raises(ConfigError, match="twins::work"):
        domain.task(name="work")(len)
    assert list(domain.types) == ["twins::work"]


# Handlers


def test_decorating_a_task_again_is_refused() -> None:
    with pytest.raises(ConfigError, match="box::put"):
        Domain("again").task(put)
    with pytest.raises(ConfigError, match="box::put"):
        Domain("again").task(name="put")(put)


@pytest.mark.parametrize("what", [5, "put", functools.partial(len, "a")])
def test_only_functions_can_be_tasks(what: Any) -> None:
    with pytest.raises(ConfigError, match="function"):
        Domain("wrong").task(what)
    with pytest.raises(ConfigError, match="function"):
        Domain("wrong").task(name="named")(what)


def test_a_second_hook_is_refused() -> None:
    domain = Domain("hooked")

    @domain.task
    async def work() -> None: ...

    @work.on_cancel
    async def first() -> None: ...

    with pytest.raises(ConfigError, match="on_cancel"):

        @work.on_cancel
        async def second() -> None: ...


def test_a_context_that_is_not_the_first_parameter_is_refused() -> None:
    domain = Domain("late")
    with pytest.raises(ConfigError, match="ctx"):

        @domain.task
        async def second(path: str, ctx: Context) -> None: ...

    with pytest.raises(ConfigError, match="ctx"):

        @domain.task
        async def keyword(path: str, *, ctx: Context) -> None: ...

    assert domain.types == {}


def test_an_annotation_that_exists_only_for_type_checkers_is_refused() -> None:
    with pytest.raises(ConfigError, match="NotThere"):

        @Domain("checked").task
        async def work(value: NotThere) -> None: ...


class Opaque:
    """A type that has no JSON form."""


async def _an_opaque_object(value: Opaque) -> None: ...
async def _a_nested_one(value: list[Opaque]) -> None: ...
async def _a_lock(value: threading.Event) -> None: ...
async def _a_function(value: Callable[[], int]) -> None: ...
async def _two_that_look_alike(value: Size | Parcel) -> None: ...
async def _objects_as_keys(value: dict[Size, int]) -> None: ...


@pytest.mark.parametrize(
    "handler",
    [_an_opaque_object, _a_nested_one, _a_lock, _a_function, _two_that_look_alike, _objects_as_keys],
)
def test_annotations_that_cannot_be_stored_are_refused_when_the_task_is_defined(
    handler: Callable[..., Any],
) -> None:
    domain = Domain("unstorable")
    with pytest.raises(ConfigError, match=handler.__name__):
        domain.task(handler)
    assert domain.types == {}


def test_a_handler_for_a_process_must_be_importable_there() -> None:
    domain = Domain("local")

    @domain.task(run_in="process")
    def work() -> None: ...

    with pytest.raises(ConfigError, match="local::work"):
        Scheduler(domains=[domain])


def _yields() -> Iterator[int]:
    yield 1


async def _yields_later() -> AsyncIterator[int]:
    yield 1


@pytest.mark.parametrize("handler", [_yields, _yields_later])
def test_a_generator_is_no_handler_because_its_body_would_never_run(handler: Callable[..., Any]) -> None:
    domain = Domain("generators")
    with pytest.raises(ConfigError, match=handler.__name__):
        domain.task(handler)
    assert domain.types == {}
