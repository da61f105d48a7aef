"""Options as functions of the arguments, and keys made of all of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from taskmill import ConfigError, Context, Domain, IoBudget, Priority, Scheduler, Submission, SubmissionError
from tests.acceptance.test_arguments import Point


async def test_functions_get_the_handlers_arguments_however_it_is_submitted() -> None:
    domain = Domain("functions")

    @domain.task(
        key=lambda bucket, path, size: f"{bucket}/{path}/{size}",
        group=lambda bucket: f"s3://{bucket}",
        label=lambda path, bucket: f"{path} of {bucket}",
        tags=lambda size: {"big": "yes" if size > 10 else "no"},
        priority=lambda path: Priority.HIGH if path.name == "now" else Priority.LOW,
    )
    async def store(ctx: Context, bucket: str, path: Path, *, size: int = 3) -> None: ...

    async with Scheduler(domains=[domain]) as scheduler:
        handles = [
            await store.submit("b", Path("now")),
            await store.submit(path=Path("later"), size=11, bucket="b"),
            await scheduler.submit(Submission("functions::store", {"bucket": "c", "path": "now", "size": 12})),
        ]
        seen = [await handle.record() for handle in handles]
    assert [(record.key, record.group, record.label, dict(record.tags), record.priority) for record in seen] == [
        ("b/now/3", "s3://b", "now of b", {"big": "no"}, 64),
        ("b/later/11", "s3://b", "later of b", {"big": "yes"}, 192),
        ("c/now/12", "s3://c", "now of c", {"big": "yes"}, 64),
    ]


async def test_functions_with_names_of_their_own_get_the_arguments_in_order() -> None:
    domain = Domain("functions")

    @domain.task(key=lambda p: f"key {p}")
    async def one(path: str) -> None: ...

    @domain.task(key=lambda *args: "+".join(map(str, args)), label=lambda *args, **kwargs: f"{args} {kwargs}")
    async def many(*numbers: int) -> None: ...

    @domain.task(key=lambda: "always")
    async def constant(path: str) -> None: ...

    @domain.task(key=str.upper)
    async def builtin(path: str) -> None: ...

    async with Scheduler(domains=[domain]):
        keys = [
            (await (await one.submit("a")).record()).key,
            (await (await many.submit(1, 2)).record()).key,
            (await (await many.submit(1, 2, 3)).record()).label,
            (await (await constant.submit("a")).record()).key,
            (await (await builtin.submit("a")).record()).key,
        ]
    assert keys == ["key a", "1+2", "(1, 2, 3) {}", "always", "A"]


async def test_a_function_gets_decoded_values_and_none_means_no_key() -> None:
    domain = Domain("decoded")

    @domain.task(key=lambda point: f"{point.x}" if point.x else None)
    async def work(point: Point) -> None: ...

    async with Scheduler(domains=[domain]) as scheduler:
        by_name = Submission("decoded::work", {"point": {"x": 5}})
        assert (await (await scheduler.submit(by_name)).record()).key == "5"
        assert (await work.submit(Point(5))).kind == "duplicate"
        assert [(await work.submit(Point(0))).kind for _ in range(2)] == ["inserted"] * 2


async def test_an_option_of_the_call_beats_a_computed_one() -> None:
    domain = Domain("beaten", group="domain", priority=9)

    @domain.task(key=lambda a: f"k{a}", group=lambda a: f"g{a}", priority=lambda a: a)
    async def work(a: int) -> None: ...

    async with Scheduler(domains=[domain]):
        record = await (await work.options(key="mine", group="ours", priority=7).submit(1)).record()
        assert (record.key, record.group, record.priority) == ("mine", "ours", 7)
        record = await (await work.submit(1)).record()
        assert (record.key, record.group, record.priority) == ("k1", "g1", 1)


async def test_a_function_is_not_called_for_an_option_of_the_call() -> None:
    domain = Domain("beaten")

    def size_of(a: int) -> IoBudget:
        raise FileNotFoundError(a)

    @domain.task(io=size_of, tags=lambda a: {"a": str(a)})
    async def work(a: int) -> None: ...

    async with Scheduler(domains=[domain]):
        record = await (await work.options(io=None, tags={"b": "2"}).submit(1)).record()
        assert (record.io, record.tags) == (None, {"a": "1", "b": "2"})
        with pytest.raises(SubmissionError, match="computing io"):
            await work.submit(1)


async def test_further_parameters_of_a_function_keep_their_defaults_and_the_rest_is_passed_by_name() -> None:
    domain = Domain("further")

    @domain.task(
        key=lambda path, prefix="p": f"{prefix}:{path}",
        label=lambda path, **rest: f"{path} {rest}",
        group=lambda **all: ",".join(all),
    )
    async def work(path: str, size: int = 3, *, mode: str = "fast") -> None: ...

    @domain.task(key=str)
    async def plain(n: int) -> None: ...

    async with Scheduler(domains=[domain]):
        record = await (await work.submit("a")).record()
        assert record.key == "p:a"
        assert record.label == "a {'size': 3, 'mode': 'fast'}"
        assert record.group == "path,size,mode"
        assert (await (await plain.submit(5)).record()).key == "5"


@pytest.mark.one_engine("nothing is submitted")
async def test_a_coroutine_function_cannot_compute_an_option() -> None:
    async def later(a: int) -> str:
        return str(a)

    async def work(a: int) -> None: ...

    with pytest.raises(ConfigError, match="key must be a plain function"):
        Domain("later").task(key=later)(work)  # type: ignore[arg-type]


async def test_key_true_is_equal_for_equal_arguments_however_they_are_said() -> None:
    domain = Domain("derived")

    @domain.task(key=True)
    async def work(a: int, b: dict[str, int] | None = None, *, c: str = "c") -> None: ...

    async with Scheduler(domains=[domain]) as scheduler:
        first = await work.submit(1, {"x": 1, "y": 2})
        again = [
            await work.submit(1, {"y": 2, "x": 1}),
            await work.submit(b={"x": 1, "y": 2}, a=1, c="c"),
            await scheduler.submit(Submission("derived::work", {"b": {"x": 1, "y": 2}, "a": 1})),
        ]
        others = [
            await work.submit(1),
            await work.submit(2, {"x": 1, "y": 2}),
            await work.submit(1, {"x": 1, "y": 2}, c="d"),
        ]
        assert [(handle.kind, handle.id) for handle in again] == [("duplicate", first.id)] * 3
        assert [handle.kind for handle in others] == ["inserted"] * 3
        assert [(await handle.record()).key for handle in again] == [(await first.record()).key] * 3


async def test_key_true_of_a_call_counts_for_that_call() -> None:
    domain = Domain("derived")

    @domain.task
    async def work(a: int) -> None: ...

    async with Scheduler(domains=[domain]):
        assert [(await work.submit(1)).kind for _ in range(2)] == ["inserted"] * 2
        keyed = work.options(key=True)
        assert [(await keyed.submit(1)).kind for _ in range(2)] == ["inserted", "duplicate"]
