"""``key=("photo.path", "bucket")``: a key made of parts of the arguments, checked when the task is defined."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, NamedTuple, NewType, NotRequired, TypedDict, TypeVar

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
    size: NotRequired[str]


class Colour(StrEnum):
    RED = "red"


Part = TypeVar("Part")
Other = TypeVar("Other")


class Box(msgspec.Struct, Generic[Part]):
    inside: Part
    more: dict[str, Part] = {}
    best: Part | None = None


class Crate(Box[list[Part]], Generic[Part, Other]):
    lid: Other | None = None


class PhotoBox(Box[Photo]): ...


@dataclass
class Frame(Generic[Part]):
    inside: Part


class Album(BaseModel, Generic[Part]):
    inside: Part


class Card(TypedDict, Generic[Part]):
    inside: Part


PhotoPath = NewType("PhotoPath", Photo)
Name = NewType("Name", str)


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
    (dict[Colour, int], {"red": 3}, ("value.red",), "[3]"),
    (dict[Literal["a", "b"], int], {"a": 3}, ("value.a",), "[3]"),
    (dict[Name, int], {"a": 3}, ("value.a",), "[3]"),
    (dict[str, int], {"y": 1}, ("value.x", "value.y"), "[null,1]"),
    (Words, {"colour": "red"}, ("value.size", "value.colour"), '[null,"red"]'),
    (PhotoPath, Photo(Path("a")), ("value.path.name",), "a"),
    (Box[Photo], Box(Photo(Path("a"))), ("value.inside.path.name",), "a"),
    (Box[Photo], Box(Photo(Path("a")), {"x": Photo(Path("b"))}), ("value.more.x.folder",), "."),
    (Box[Place], Box(Place("a"), best=Place("b")), ("value.best.bucket",), "b"),
    (Box, Box({"path": "a"}), ("value.inside.path",), "a"),
    (PhotoBox, PhotoBox(Photo(Path("a"))), ("value.inside.path.name",), "a"),
    (Crate[int, Place], Crate([1], lid=Place("b")), ("value.lid.bucket",), "b"),
    (Frame[Photo], Frame(Photo(Path("a"))), ("value.inside.path.name",), "a"),
    (Card[Place], {"inside": Place("b")}, ("value.inside.bucket",), "b"),
    (Album[Model], Album[Model](inside=Model(path="a")), ("value.inside.path",), "a"),
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


async def test_a_path_leads_into_further_keyword_arguments() -> None:
    domain = Domain("d")

    @domain.task(key=("more.bucket", "more.photo.bucket"))
    async def work(**more: Place) -> None: ...

    async with Scheduler(domains=[domain]):
        handles = [await work.submit(photo=Place("a")), await work.submit(photo=Place("a"), other=Place("b"))]
        nothing = await work.submit(other=Place("b"))
        assert (await handles[0].record()).key == '[null,"a"]'
        assert (await nothing.record()).key is None
    assert handles[0].id == handles[1].id


@pytest.mark.parametrize(("kind", "value"), [(dict[str, int], {"y": 1}), (Words, {"colour": "red"})])
async def test_a_task_has_no_key_if_no_mapping_has_an_entry_that_a_path_names(kind: Any, value: Any) -> None:
    domain = Domain("d")

    async def work(value: Any) -> None: ...

    work.__annotations__ = {"value": kind}
    task = domain.task(key=("value.size",))(work)
    async with Scheduler(domains=[domain]):
        assert (await (await task.submit(value)).record()).key is None


@pytest.mark.one_engine("no store is opened")
@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("rest.path", "rest has no 'path': it is a list"),
        ("more.place.bukket", r"more.place has no 'bukket': it is a Place"),
        ("numbers.1", r"numbers has no '1': it is dict\[int, str\], and a path can only name a key that is a text"),
        ("chosen.c", r"chosen has no 'c': it is dict\[typing.Literal"),
        ("box.inside.pth", "box.inside has no 'pth': it is a Photo"),
        ("crate.inside.path", "crate.inside has no 'path': it is a list"),
        ("named.pth", "named has no 'pth': it is a Photo"),
    ],
)
def test_a_path_that_no_value_can_have_is_refused_when_the_task_is_defined(path: str, says: str) -> None:
    domain = Domain("d")

    async def work(
        numbers: dict[int, str],
        chosen: dict[Literal["a", "b"], str],
        box: Box[Photo],
        crate: Crate[Photo, int],
        named: PhotoPath,
        *rest: Photo,
        **more: Place,
    ) -> None: ...

    with pytest.raises(ConfigError, match=says):
        domain.task(key=(path,))(work)


@pytest.mark.one_engine("no store is opened")
def test_paths_are_for_definitions_only() -> None:
    domain = Domain("d")

    @domain.task
    async def work(path: str) -> None: ...

    with pytest.raises(SubmissionError, match="key must be a string, not tuple"):
        work.options(key=("path",))  # type: ignore[arg-type]
