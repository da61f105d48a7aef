"""Equal arguments have equal keys, whatever the order of a mapping or a set."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pydantic import BaseModel, ConfigDict, Field, RootModel

from taskmill import Domain, Scheduler, Submission

WORDS = ["pear", "apple", "fig", "plum", "cherry", "lime", "kiwi", "date"]
FRUIT = frozenset(WORDS)


@dataclass
class Photo:
    path: str
    bucket: str


@dataclass
class Basket:
    owner: str
    fruit: set[str]
    prices: dict[str, int] = field(default_factory=dict)


@dataclass
class Place:
    city: str
    path: Path = Path("maps")
    floor: int = 0


class PlaceStruct(msgspec.Struct):
    city: str
    path: Path = Path("maps")
    floor: int = 0


class PlaceModel(BaseModel):
    city: str
    path: Path = Path("maps")
    floor: int = 0


class Shelf(msgspec.Struct, rename="camel"):
    top_row: frozenset[str]
    by_size: dict[str, Any] = {}


class Row(msgspec.Struct, array_like=True, tag=True):
    number: int
    fruit: set[str]


class Cellar(BaseModel):
    model_config = ConfigDict(extra="allow")

    wine: set[str] = Field(alias="vino")
    baskets: list[dict[str, int]] = []


class Heap(RootModel[set[str]]):
    pass


def _mapping(words: list[str]) -> dict[str, Any]:
    return {word: dict.fromkeys(words, 1) for word in words}


PAIRS: dict[str, tuple[Any, Callable[[list[str]], Any]]] = {
    "dict": (dict[str, Any], _mapping),
    "any": (Any, lambda words: [_mapping(words)]),
    "set": (set[str], set),
    "set of numbers": (set[int], lambda words: {len(word) * 1000 + ord(word[0]) for word in words}),
    "frozenset": (frozenset[str], frozenset),
    "list of sets": (list[set[str]], lambda words: [set(words)]),
    "set of sets": (frozenset[frozenset[str]], lambda words: frozenset(map(frozenset, (words, sorted(words)[:3])))),
    "dataclass": (Basket, lambda words: Basket("ann", set(words), dict.fromkeys(words, 1))),
    "struct": (Shelf, lambda words: Shelf(frozenset(words), _mapping(words))),
    "array": (Row, lambda words: Row(3, set(words))),
    "model": (Cellar, lambda words: Cellar(vino=set(words), baskets=[dict.fromkeys(words, 1)], **_mapping(words))),
    "root": (Heap, lambda words: Heap(set(words))),
}


def _task(kind: Any, key: Any) -> Any:
    async def work(value: Any) -> None: ...

    work.__annotations__ = {"value": kind}
    return Domain("d").task(key=key)(work)


async def keys_of(words: list[str]) -> list[str | None]:
    """Return the keys of values of every kind that are made of these words."""
    keys: list[str | None] = []
    for kind, make in PAIRS.values():
        for key in (True, ("value",)):
            task = _task(kind, key)
            async with Scheduler(domains=[task.domain]):
                handle = await task.submit(make(words))
                keys.append((await handle.record()).key)
    return keys


async def test_the_order_in_which_a_mapping_or_a_set_was_filled_does_not_change_the_key() -> None:
    assert await keys_of(WORDS[::-1]) == await keys_of(WORDS)


@pytest.mark.one_engine("the order of sets is what differs")
async def test_keys_are_equal_in_every_process() -> None:
    here = str(await keys_of(WORDS))
    code = f"import asyncio; from {__name__} import *; print(asyncio.run(keys_of(WORDS)), end='')"
    for seed in ("1", "2"):
        there = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            cwd=Path(__file__).parents[2],
            check=True,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert there.stdout == here


async def test_fields_lists_and_plain_values_have_the_keys_that_they_always_had() -> None:
    """Tasks that wait in a store have these keys, so another text would let a duplicate in."""
    values: list[tuple[Any, Any, str, str]] = [
        (int, 5, "[5]", "3e2955abad71fa9f9efa005aae5d55b2"),
        (list[int], [3, 1, 2], "[[3,1,2]]", "ce62b09b90ad45655b3c820205ea2cc2"),
        (Any, [2, [1.5, None]], "[[2,[1.5,null]]]", "ed9a81b05c2b36063e8d17e6da4fc001"),
        (Photo, Photo("b", "a"), '[{"path":"b","bucket":"a"}]', "100ca64e73ddfe894bd73b8dd591ffee"),
    ]
    for kind, value, path_key, whole_key in values:
        for key, stored in ((("value",), path_key), (True, whole_key)):
            task = _task(kind, key)
            async with Scheduler(domains=[task.domain]):
                assert (await (await task.submit(value)).record()).key == stored


async def test_a_process_without_the_handler_derives_the_same_key(tmp_path: Path) -> None:
    domain = Domain("far")

    @domain.task(key=True)
    async def work(names: dict[str, int], fruit: frozenset[str] = FRUIT) -> None: ...

    async with Scheduler(tmp_path / "tasks.db", domains=[domain]):
        own = await work.submit({"a": 1, "b": 2})
    async with Scheduler(tmp_path / "tasks.db") as elsewhere:
        by_name = await elsewhere.submit(Submission("far::work", {"names": {"b": 2, "a": 1}}))
        prepared = await elsewhere.submit(work.prepare({"b": 2, "a": 1}, FRUIT))
    assert {by_name.id, prepared.id} == {own.id}


@pytest.mark.parametrize("kind", [Place, PlaceStruct, PlaceModel])
@pytest.mark.parametrize("key", [True, ("value",)])
async def test_a_field_left_to_its_default_does_not_change_the_key(kind: Any, key: Any) -> None:
    task = _task(list[kind], key)
    async with Scheduler(domains=[task.domain]) as scheduler:
        whole = await task.submit([kind(city="Bern")])
        by_name = await scheduler.submit(Submission("d::work", {"value": [{"city": "Bern"}]}))
    assert by_name.id == whole.id
