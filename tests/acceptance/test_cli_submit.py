"""``taskmill submit``: arguments by the published signature, options as flags, and waiting for the end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import Any, Literal

import pytest

from taskmill import Domain, GiveUp, Scheduler
from tests.acceptance.command_line import Here, taskmill

pytestmark = pytest.mark.timeout(60)


@dataclass
class Size:
    width: int


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


def _domain() -> Domain:
    domain = Domain("photos")

    @domain.task(name="送る" * 20)
    async def wide(name: str) -> str:
        return name

    @domain.task
    async def scale(
        path: Path,
        factor: float,
        times: int = 1,
        loud: bool = False,
        at: datetime | None = None,
        colour: Colour = Colour.RED,
        mode: Literal["fast", 2] = "fast",
        size: Size | None = None,
        marks: tuple[str, ...] = (),
        anything: Any = None,
    ) -> dict[str, Any]:
        return {"path": str(path), "factor": factor, "times": times, "loud": loud, "at": at and at.isoformat()}

    @domain.task
    async def gather(first: str, **others: int) -> int:
        return len(first) + sum(others.values())

    @domain.task
    async def refuse() -> None:
        raise GiveUp("never\nagain")

    return domain


@pytest.fixture
async def file(tmp_path: Path) -> Path:
    async with Scheduler(tmp_path / "tasks.db", domains=[_domain()]):
        return tmp_path / "tasks.db"


@pytest.fixture
async def dispatched(file: Path) -> AsyncIterator[Path]:
    async with Scheduler(file, domains=[_domain()], durability="process") as scheduler, scheduler.running():
        yield file


async def run(*words: object) -> tuple[int, str, str]:
    """Run the real program beside the dispatcher of this process."""
    done = await asyncio.to_thread(taskmill, *words)
    return done.returncode, done.stdout, done.stderr


async def test_wait_prints_the_result_and_the_exit_code_tells_success(dispatched: Path) -> None:
    code, said, wrong = await run("submit", dispatched, "photos::scale", "path=a b.jpg", "factor=2", "--wait")
    assert (code, wrong) == (0, "")
    assert json.loads(said) == {"path": "a b.jpg", "factor": 2, "times": 1, "loud": False, "at": None}
    code, said, wrong = await run("submit", dispatched, "photos::refuse", "--wait")
    assert (code, said) == (1, "")
    assert "failed" in wrong
    assert wrong.endswith(": never\n")
    code, said, _ = await run("submit", dispatched, "photos::refuse", "--wait", "--json")
    assert (code, json.loads(said)["ending"]) == (1, "failed")
    wide = f"photos::{'送る' * 20}"
    code, said, _ = await run("submit", dispatched, wide, "name=写真 🎉", "--wait")
    assert (code, said) == (0, '"写真 🎉"\n')


def test_a_task_is_stored_and_waiting_may_be_given_up(here: Here, file: Path) -> None:
    said = here("submit", file, "photos::refuse")
    assert said == "task 1 is stored\nnothing dispatches this store now; tasks start with the next dispatcher\n"
    late = here.run("submit", file, "photos::refuse", "--wait", "--timeout", "50ms")
    assert late.code == 1
    assert "task 2 has not ended after 50 ms; it continues" in late.wrong
    assert here.answer("status", file)["active"]["pending"] == 2


def test_a_dry_run_says_what_would_become_of_the_task_and_stores_nothing(here: Here, file: Path) -> None:
    call = ("submit", file, "photos::gather", "first=a", "--key", "k")
    assert here(*call, "--dry-run") == "the task would be stored\n"
    assert here.answer("ls", file) == []
    here(*call)
    assert "has this key already" in here(*call, "--dry-run")
    assert here.answer(*call, "--dry-run", "--on-duplicate", "supersede")["outcomes"] == ["superseded"]
    assert "would be refused" in here.refusal(*call, "--dry-run", "--on-duplicate", "reject", code=1)
    assert len(here.answer("ls", file)) == 1
    assert "give one of them" in here.refusal(*call, "--dry-run", "--wait", code=2)


def test_arguments_have_the_types_of_the_signature(here: Here, file: Path) -> None:
    def payload(*words: str) -> dict[str, Any]:
        id = here.answer("submit", file, *words)["id"]
        found: dict[str, Any] = here.answer("show", file, id)["payload"]
        return found

    words = [
        "path=1",
        "factor=0.5",
        "times=3",
        "loud=true",
        "colour=blue",
        "mode=2",
        'size={"width": 3}',
        'marks=["a"]',
    ]
    assert payload("photos::scale", *words, "anything=[1]") == {
        "path": "1",
        "factor": 0.5,
        "times": 3,
        "loud": True,
        "colour": "blue",
        "mode": 2,
        "size": {"width": 3},
        "marks": ["a"],
        "anything": [1],
    }
    assert payload("photos::scale", "path=x", "factor=1", "anything=plain words")["anything"] == "plain words"
    assert payload("photos::scale", "path=x", "factor=1", "at=2030-01-31T18:30+02:00")["at"].startswith("2030-01-31T")
    assert payload("photos::scale", "factor=1", "--json-args", '{"path": "null", "at": null}') == {
        "path": "null",
        "factor": 1,
        "at": None,
    }
    assert payload("photos::gather", "first=a=b", "x=3") == {"first": "a=b", "x": 3}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["photos::scale", "factor=1"], "argument path is missing; photos::scale takes path (text)"),
        (["photos::scale", "path=x", "factor=much"], "factor must be a number"),
        (["photos::scale", "path=x", "factor=1", "times=1.5"], "times must be a whole number"),
        (["photos::scale", "path=x", "factor=1", "times=true"], "times must be a whole number"),
        (["photos::scale", "path=x", "factor=1", "loud=yes"], "loud must be true or false"),
        (["photos::scale", "path=x", "factor=1", "colour=green"], "colour must be one of red, blue"),
        (["photos::scale", "path=x", "factor=1", "at=soon"], "at is written as"),
        (["photos::scale", "path=x", "factor=1", "size=3"], "size must be a JSON object or null"),
        (["photos::scale", "path=x", "factor=1", "wrong=3"], "no argument wrong"),
        (["photos::scale", "path=x", "path=y"], "given twice"),
        (["photos::scale", "path"], "NAME=VALUE"),
        (["photos::scale", "--json-args", "{"], "not JSON"),
        (["photos::scale", "--json-args", "[]"], "JSON object"),
        (["photos::other"], "photos::scale"),
        (["photos::refuse", "--timeout", "3s"], "needs --wait"),
        (["photos::refuse", "--priority", "300"], "to 255"),
        (["photos::refuse", "--run-at", "soon"], "--run-at"),
        (["photos::refuse", "--ttl", "long"], "--ttl"),
        (["photos::refuse", "--retry-delay", "3s"], "need --retry"),
        (["photos::refuse", "--io", "disk=3"], "net_tx"),
        (["photos::refuse", "--depends-on", "77"], "77"),
        (["photos::refuse", "--max-runs", "3"], "max_runs"),
        ([], "task type"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",  # pyright: ignore[reportUnknownArgumentType, reportUnknownLambdaType]
)
def test_a_submission_that_cannot_be_stored_is_refused(here: Here, file: Path, words: list[str], said: str) -> None:
    assert said in here.refusal("submit", file, *words, code=2)
    assert here.answer("ls", file) == []


def test_options_are_flags(here: Here, file: Path) -> None:
    first = here.answer("submit", file, "photos::refuse", "--key", "k", "--label", "見出し")["id"]
    again = here.answer("submit", file, "photos::refuse", "--key", "k", "--on-duplicate", "supersede")
    assert (again["kind"], again["replaced_id"]) == ("superseded", first)
    assert "has this key already" in here("submit", file, "photos::refuse", "--key", "k")
    assert "holds the key" in here.refusal(
        "submit", file, "photos::refuse", "--key", "k", "--on-duplicate", "reject", code=1
    )
    flags = ["--priority", "high", "--group", "g", "--tag", "a=b", "--run-after", "1h", "--ttl", "2h"]
    flags += ["--retry", "5", "--retry-delay", "1s", "--retry-maximum", "60s", "--attempt-timeout", "10m"]
    flags += ["--io", "net_tx=64MB", "--no-fail-fast"]
    task = here.answer("show", file, here.answer("submit", file, "photos::refuse", *flags)["id"])
    assert (task["priority"], task["group"], task["tags"], task["status"]) == (64, "g", {"a": "b"}, "scheduled")
    assert task["io"]["net_tx"] == 64_000_000
    blocked = here.answer("submit", file, "photos::refuse", "--depends-on", task["id"])["id"]
    assert here.answer("show", file, blocked)["status"] == "blocked"
    assert here.answer("submit", file, "photos::refuse", "--every", "1h", "--max-runs", 3)["kind"] == "inserted"


async def test_an_option_that_only_the_program_can_compute_is_named(here: Here, tmp_path: Path) -> None:
    domain, file = Domain("shop"), tmp_path / "tasks.db"

    @domain.task(group=lambda api: api, key=("api",), label="a booking")
    async def book(api: str) -> None: ...

    async with Scheduler(file, domains=[domain]):
        pass
    for more in ([], ["--dry-run"], ["--json"]):
        told = (await asyncio.to_thread(here.run, "submit", file, "shop::book", "api=post", *more)).wrong
        assert [line.partition(" from the arguments")[0] for line in told.splitlines()] == [
            "taskmill: shop::book computes its group",
            "taskmill: shop::book computes its key",
        ]
        assert told.splitlines()[0].endswith("unless you give --group")
    words = ("submit", file, "shop::book", "api=post", "--group", "bank", "--key", "k")
    assert (await asyncio.to_thread(here.run, *words)).wrong == ""


async def test_task_types_describe_what_programs_have_registered(file: Path) -> None:
    async with Scheduler(file) as scheduler:
        types = await scheduler.task_types()
    assert [name for name in types if "送" not in name] == ["photos::gather", "photos::refuse", "photos::scale"]
    scale = {each.name: each for each in types["photos::scale"].parameters or ()}
    assert (scale["path"].kinds, scale["path"].required) == (("text",), True)
    assert (scale["at"].kinds, scale["at"].required) == (("datetime", "null"), False)
    assert scale["colour"].choices == ("red", "blue")
    assert scale["anything"].kinds == ("any",)
    assert types["photos::gather"].takes_more
