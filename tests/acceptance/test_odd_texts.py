"""Texts with any character are returned as they were given, and only equal ones are equal."""

from __future__ import annotations

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st

from taskmill import Scheduler
from tests.acceptance.box import NUL, anything, box, put
from tests.repetition import often

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=30)


@settings(max_examples=often(10), deadline=None)
@given(st.lists(texts, unique=True, min_size=1, max_size=12))
def test_keys_with_any_character_but_nul_and_surrogates_round_trip(keys: list[str]) -> None:
    async def round_trip() -> None:
        async with Scheduler(domains=[box]) as scheduler:
            handles = await scheduler.submit_many([put.options(key=key).prepare(key) for key in keys])
            for key, handle in zip(keys, handles, strict=True):
                record = await scheduler.find("box::put", key)
                assert record is not None
                assert (record.id, record.key, record.payload) == (handle.id, key, {"path": key})
                assert (await put.options(key=key).submit("again")).kind == "duplicate"

    asyncio.run(round_trip())


@settings(max_examples=often(10), deadline=None)
@given(texts, texts, st.dictionaries(texts.filter(lambda t: len(t.encode()) <= 64), texts, max_size=8))
def test_labels_groups_and_tags_with_any_character_round_trip(label: str, group: str, tags: dict[str, str]) -> None:
    async def round_trip() -> None:
        async with Scheduler(domains=[box]) as scheduler:
            handle = await put.options(label=label, group=group, tags=tags).submit("a")
            record = await scheduler.get(handle.id)
            assert (record.label, record.group, record.tags) == (label, group, tags)
            for name, value in tags.items():
                assert await scheduler.tag_values(name) == {value: 1}

    asyncio.run(round_trip())


async def test_a_payload_may_hold_the_nul_character(scheduler: Scheduler) -> None:
    handle = await anything.submit(NUL)
    await scheduler.run_until_idle(timeout=10)
    assert await handle.result() == NUL


async def test_keys_that_only_look_alike_are_different_keys(scheduler: Scheduler) -> None:
    alike = ["1", "1.0", "01", " 1", "1 ", "é", "e\u0301", "K", "\u212a", "k", "null", "true", '"1"', "%", "_"]
    handles = [await put.options(key=key).submit("a") for key in alike]
    assert [handle.kind for handle in handles] == ["inserted"] * len(alike)
    assert scheduler
