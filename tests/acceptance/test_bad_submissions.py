"""A value that is no submission, or has an unknown type, is refused; a batch with one bad submission stores none."""

from __future__ import annotations

import asyncio
import functools
from pathlib import Path
from typing import Any

import pytest

from taskmill import DuplicateTask, Handle, PayloadTooLarge, Scheduler, Submission, SubmissionError, UnknownTaskType
from tests.acceptance.box import MIB, NUL, put, refused, unchanged


async def test_an_unknown_task_type_is_refused_by_its_name(scheduler: Scheduler, path: Path) -> None:
    for name in ("box::nothing", "nowhere::put", "put", NUL):
        submission = Submission(name, {})
        submit = functools.partial(scheduler.submit, submission)
        wrong = await refused(path, submit, UnknownTaskType, "registered")
        assert repr(name) in str(wrong)


@pytest.mark.parametrize("type", ["", None, 5, put])
@pytest.mark.one_engine("it is refused before the store is asked")
def test_a_submission_needs_the_name_of_a_task_type(type: Any) -> None:
    with pytest.raises(SubmissionError, match="type"):
        Submission(type, {})


@pytest.mark.parametrize("given", ["box::put", {"path": "a"}, None, 5, put])
async def test_only_submissions_can_be_submitted(scheduler: Scheduler, path: Path, given: Any) -> None:
    await refused(path, lambda: scheduler.submit(given), SubmissionError, "submission")
    await refused(path, lambda: scheduler.submit_many([put.prepare("a"), given]), SubmissionError, "submission")


@pytest.mark.parametrize("given", [5, None, put])
async def test_submit_many_takes_an_iterable_of_submissions(scheduler: Scheduler, path: Path, given: Any) -> None:
    await refused(path, lambda: scheduler.submit_many(given), SubmissionError, "submissions")


# Batches


async def test_one_bad_submission_in_a_batch_stores_none(scheduler: Scheduler, path: Path) -> None:
    for bad, error in (
        (Submission("box::put", {"path": 7}), SubmissionError),
        (Submission("box::nothing", {}), UnknownTaskType),
        (Submission("box::put", {"path": "a" * MIB}), PayloadTooLarge),
    ):
        batch = [put.prepare("first"), bad, put.prepare("last")]
        with unchanged(path), pytest.raises(error):
            await scheduler.submit_many(batch)


async def test_a_rejected_duplicate_in_a_batch_stores_none(scheduler: Scheduler, path: Path) -> None:
    held = await scheduler.find("box::put", "held")
    assert held is not None
    batch = [
        put.options(key="fresh").prepare("first"),
        put.options(key="held", priority=0).prepare("raises the holder"),
        put.options(key="held", on_duplicate="reject").prepare("refused"),
        put.prepare("last"),
    ]
    for chosen in (batch, [batch[0], batch[2]], [batch[2]]):
        with unchanged(path), pytest.raises(DuplicateTask, match="held") as caught:
            await scheduler.submit_many(chosen)
        assert caught.value.existing_id == held.id


async def test_a_refused_batch_does_not_harm_submissions_at_the_same_time(scheduler: Scheduler) -> None:
    rejected = put.options(key="held", on_duplicate="reject")
    answers = await asyncio.gather(
        put.submit("before"),
        scheduler.submit_many([put.prepare("lost"), rejected.prepare("lost")]),
        put.submit("after"),
        return_exceptions=True,
    )
    before, batch, after = answers
    assert isinstance(batch, DuplicateTask)
    assert isinstance(before, Handle)
    assert isinstance(after, Handle)
    waiting = [record.payload["path"] for record in await scheduler.tasks()]
    assert waiting == ["already here", "before", "after"]
