"""``key=("photo.path", "bucket")``: a key made of parts of the arguments, checked when the task is defined."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypedDict

import msgspec
import pytest
from pydantic import BaseModel

from taskmill import ConfigError, Context, Domain, Scheduler, SubmissionError


class Place(msgspec.Struct):
    bucket: str
    region: str | None = None


@dataclass
class Photo:
    path: Path
    place: Place | None = None

    @property
    def folder(self) -> str:
        return str(self.path.parent)


class Model(BaseModel):
    path: str


class Pair(NamedTuple):
    left: int


class Words(TypedDict):
    colour: str


KEYS: list[tuple[Any, Any, Any, str]] = [
    (str, "a", ("value",), "a"),
    (int, 5, ("value",), "[5]"),
    (Photo, Photo(Path("a/b")), ("value.path",), '["a/b"]'),
    (Photo, Photo(Path("a/b")), ("value.folder",), "a"),
    (Photo, Photo(Path("a/b")), ("value.path.name", "value.path"), '["b","a/b"]'),
    (Photo, Photo(Path("a"), Place("b")), ("value.place.bucket",), "b"),
    (Photo, Photo(Path("a")), ("value.place.bucket", "value.path"), '[null,"a"]'),
    (Annotated[Photo, "noted"], Photo(Path("a")), ("value.path.name",), "a"),
    (Model, Model(path="a"), ("value.path",), "a"),
    (Pair, Pair(3), ("value.left",), "[3]"),
    (Words, {"colour": "red"}, ("value.colour",), "red"),
    (dict[str, Place], {"x": Place("b")}, ("value.x.bucket",), "b"),
    (dict[str, Any], {"x": {"y": 1}}, ("value.x.y",), "[1]"),
    (Any, {"x": {"y": "z"}}, ("value.x.y",), "z"),
]


@pytest.mark.parametrize(
    ("kind", "value", "key", "made"), KEYS, ids=[f"{key}-{i}" for i, (*_, key, _) in enumerate(KEYS)]
)
async def test_a_key_is_made_of_the_parts_that_the_paths_name(kind: Any, value: Any, key: Any, made: str) -> None:
    domain = Domain("d")

    async def work(value: Any) -> None: ...

    work.__annotations__ = {"value": kind}
    task = domain.task(key=key)(work)
    async with Scheduler(domains=[domain]):
        handle = await task.submit(value)
        again = await task.submit(value)
        assert (await handle.record()).key == made
        assert (again.id, again.kind) == (handle.id, "duplicate")


@pytest.mark.parametrize("key", [("photo.place.bucket",), ("photo.place.bucket", "photo.place.region")])
async def test_a_task_whose_paths_all_lead_to_none_has_no_key(key: Any) -> None:
    domain = Domain("d")

    @domain.task(key=key)
    async def send(photo: Photo | None) -> None: ...

    async with Scheduler(domains=[domain]):
        handles = [await send.submit(value) for value in (Photo(Path("a")), Photo(Path("b")), None)]
        assert [(await handle.record()).key for handle in handles] == [None, None, None]
    assert len({handle.id for handle in handles}) == 3


async def test_several_parameters_make_one_key_and_others_do_not_count() -> None:
    domain = Domain("d")

    @domain.task(key=("photo.path", "bucket"))
    async def send(ctx: Context, photo: Photo, *, bucket: str = "main", quality: int = 80) -> None: ...

    async with Scheduler(domains=[domain]):
        first = await send.submit(Photo(Path("a")))
        same = await send.submit(Photo(Path("a"), Place("x")), bucket="main", quality=9)
        other = await send.submit(Photo(Path("a")), bucket="other")
        own = await send.options(key="k").submit(Photo(Path("a")))
        assert (await first.record()).key == '["a","main"]'
    assert same.id == first.id
    assert len({first.id, other.id, own.id}) == 3


@pytest.mark.one_engine("no store is opened")
@pytest.mark.parametrize(
    ("key", "says"),
    [
        ((), "at least one"),
        (("",), "paths such as"),
        (("photo..path",), "paths such as"),
        ((5,), "paths such as"),
        (("foto.path",), "the parameters are: photo, when, names, words"),
        (("ctx",), "the parameters are"),
        (("photo.pth",), "photo has no 'pth': it is a Photo; it has path, place"),
        (("photo.place.bukket",), r"photo.place has no 'bukket'"),
        (("when.yeer",), "when has no 'yeer': it is a datetime"),
        (("names.0",), "names has no '0': it is a list"),
        (("words.color",), "words has no 'color'.*colour"),
    ],
)
def test_a_path_that_leads_nowhere_is_refused_when_the_task_is_defined(key: Any, says: str) -> None:
    domain = Domain("d")

    async def work(ctx: Context, photo: Photo, when: datetime, names: list[str], words: Words) -> None: ...

    with pytest.raises(ConfigError, match=says):
        domain.task(key=key)(work)


async def test_a_mapping_without_the_key_of_a_path_is_refused_at_submit() -> None:
    domain = Domain("d")

    @domain.task(key=("value.x",))
    async def work(value: dict[str, int]) -> None: ...

    async with Scheduler(domains=[domain]):
        with pytest.raises(SubmissionError, match="computing key raised KeyError: 'x'"):
            await work.submit({"y": 1})


@pytest.mark.one_engine("no store is opened")
def test_paths_are_for_definitions_only() -> None:
    domain = Domain("d")

    @domain.task
    async def work(path: str) -> None: ...

    with pytest.raises(SubmissionError, match="key must be a string, not tuple"):
        work.options(key=("path",))  # type: ignore[arg-type]
