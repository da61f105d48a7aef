"""``taskmill retry``, ``cancel`` and ``priority`` for many tasks: by filters, after a question, in batches."""

from __future__ import annotations

import asyncio
import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from rich.cells import cell_len

from taskmill import Domain, Retry, Scheduler
from taskmill.cli import bulk
from taskmill.cli.commands import retry
from tests.acceptance.command_line import ENVIRONMENT, Here, taskmill
from tests.acceptance.terminal import needs_a_terminal, on_terminal, without_colours
from tests.both_engines import Engine, name_of
from tests.warm_python import run as warm_run

pytestmark = pytest.mark.timeout(60)

WIDE = "見出し" * 30


def _words(value: object) -> str:
    return " ".join(map(str, cast("list[object]", value))) if isinstance(value, list) else str(value)


class Fragile:
    """A domain whose task fails until it is repaired."""

    def __init__(self, long_name: str = "n" * 80) -> None:
        self.domain = Domain("fragile")
        self.is_mended = False

        @self.domain.task(retry=Retry.none())
        async def work(n: int) -> int:
            if not self.is_mended:
                raise ConnectionError(f"{n}: refused")
            return n

        @self.domain.task(name=long_name, retry=Retry.none())
        async def long(n: int) -> None:
            raise ValueError(f"{n} {WIDE}")

        self.work, self.long = work, long


async def fill(file: Path, *, dead: int, waiting: int = 0, long: int = 0) -> None:
    fragile = Fragile()
    async with Scheduler(file, domains=[fragile.domain], durability="process") as scheduler:
        for n in range(dead):
            await fragile.work.options(tags={"half": str(n % 2)}, group=f"g{n % 3}").submit(n)
        for n in range(long):
            await fragile.long.options(label=WIDE).submit(n)
        await scheduler.run_until_idle()
        await scheduler.submit_many(
            fragile.work.options(key=f"k{n}", tags={"half": str(n % 2)}, group=f"g{n % 3}").prepare(n)
            for n in range(waiting)
        )


def counts(here: Here, file: Path) -> dict[str, int]:
    status = here.answer("status", file)
    return {word: number for word, number in {**status["active"], **status["ended"]}.items() if number}


# The whole way


async def test_500_dead_letters_are_retried_by_one_command_while_a_dispatcher_runs(
    engine: Engine, tmp_path: Path
) -> None:
    file, fragile, many = tmp_path / "tasks.db", Fragile(), engine.fewer(500)
    async with Scheduler(file, domains=[fragile.domain], durability="process") as scheduler, scheduler.running():
        handles = await scheduler.submit_many(fragile.work.prepare(n) for n in range(many))
        await asyncio.gather(*(handle.wait() for handle in handles))
        assert await scheduler.count(status="dead_letter") == many
        fragile.is_mended = True
        done = await asyncio.to_thread(taskmill, "retry", file, "--status", "dead_letter", "--yes")
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == f"{many} dead letters returned to the queue\n"
        assert sorted(await asyncio.gather(*(handle.result() for handle in handles))) == list(range(many))
        assert await scheduler.count(status="dead_letter") == 0


DYING = """
import os, signal, sys
from dataclasses import replace
from taskmill.cli import bulk, main

bulk.BATCH = 10
batches = 0
execute = bulk.execute

def killed_after_three(arguments, words, action):
    async def do(scheduler, ids, filters):
        global batches
        if batches == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        batches += 1
        return await action.do(scheduler, ids, filters)

    return execute(arguments, words, replace(action, do=do))

bulk.execute = killed_after_three
sys.exit(main(sys.argv[1:]))
"""

COMMANDS: dict[str, tuple[list[str], dict[str, int], dict[str, int]]] = {
    "retry": (["--status", "dead_letter"], {"pending": 80, "dead_letter": 20}, {"pending": 100}),
    "cancel": (
        ["--status", "pending"],
        {"pending": 20, "cancelled": 30, "dead_letter": 50},
        {"cancelled": 50, "dead_letter": 50},
    ),
    "priority": (
        ["high", "--status", "pending"],
        {"pending": 50, "dead_letter": 50},
        {"pending": 50, "dead_letter": 50},
    ),
}


@pytest.mark.parametrize("command", COMMANDS)
async def test_a_killed_command_leaves_a_consistent_store_and_the_same_command_does_the_rest(
    here: Here, tmp_path: Path, command: str
) -> None:
    file = tmp_path / "tasks.db"
    await fill(file, dead=50, waiting=50)
    rest, halfway, at_last = COMMANDS[command]
    words = [command, name_of(file), *rest, "--yes"]
    killed = await asyncio.to_thread(
        warm_run, [sys.executable, "-c", DYING, *words], check=False, env=ENVIRONMENT, capture_output=True
    )
    assert (killed.returncode, killed.stdout) == (-9, b"")
    assert await asyncio.to_thread(counts, here, file) == halfway
    urgent = await asyncio.to_thread(here.answer, "ls", file, "--limit", 0)
    if command == "priority":
        assert sum(record["priority"] == 64 for record in urgent) == 30
    assert (await asyncio.to_thread(here.run, *words)).code == 0
    assert await asyncio.to_thread(counts, here, file) == at_last
    assert (await asyncio.to_thread(here.run, "doctor", file)).code == 0, "no problem is found"


# Choosing


@pytest.fixture
def queue(tmp_path: Path) -> Path:
    file = tmp_path / "tasks.db"
    asyncio.run(fill(file, dead=6, waiting=6))
    return file


FILTERS: list[tuple[list[Any], int]] = [
    (["--status", "dead_letter"], 6),
    (["--type", "fragile::work"], 6),
    (["--type", "fragile::other"], 0),
    (["--domain", "fragile"], 6),
    (["--group", "g0"], 2),
    (["--tag", "half=1"], 3),
    (["--tag", "half=1", "--group", "g1"], 1),
    (["--tag-prefix", "ha"], 6),
    (["--tag-prefix", "x"], 0),
    (["--parent", 1], 0),
    (["--exception", "ConnectionError"], 6),
    (["--exception", "ValueError"], 0),
    (["--location", "nowhere.py:1 in nothing"], 0),
    (["--location", ""], 0),
    (["--since", "1h"], 6),
    (["--older", "1h"], 0),
    (["--since", "2020-01-31T18:30"], 6),
    (["--older", "2020-01-31"], 0),
    (["--domain", "fragile", "--limit", 4], 4),
]


@pytest.mark.parametrize(("filters", "expected"), FILTERS, ids=_words)
def test_filters_select_dead_letters(here: Here, queue: Path, filters: list[Any], expected: int) -> None:
    found = here.answer("retry", queue, *filters, "--dry-run")
    assert (found["matched"], len(found["ids"]), found["dry_run"]) == (expected, expected, True)
    assert counts(here, queue) == {"pending": 6, "dead_letter": 6}, "nothing was changed"


def test_filters_select_active_tasks(here: Here, queue: Path) -> None:
    for filters, expected in (
        (["--key", "k3"], 1),
        (["--status", "pending"], 6),
        (["--status", "running"], 0),
        (["--group", "g2", "--limit", 1], 1),
    ):
        assert here.answer("cancel", queue, *filters, "--dry-run")["matched"] == expected
        assert here.answer("priority", queue, "high", *filters, "--dry-run")["matched"] == expected
    assert here("cancel", queue, "--group", "g0", "--yes") == "2 active tasks cancelled\n"
    assert here("priority", queue, "high", "--group", "g1", "--yes") == "2 active tasks now with the priority high\n"
    assert here("cancel", queue, "--group", "g0", "--yes") == "no active task matches; nothing was changed\n"
    assert [record["priority"] for record in here.answer("ls", queue)] == [64, 128, 64, 128]
    assert counts(here, queue) == {"pending": 4, "cancelled": 2, "dead_letter": 6}


def test_more_tasks_than_one_page_and_one_batch_are_changed(
    here: Here, queue: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "PAGE", 2)
    monkeypatch.setattr(bulk, "BATCH", 2)
    assert here.answer("retry", queue, "--status", "dead_letter", "--limit", 3, "--dry-run")["matched"] == 3
    answer = here.answer("retry", queue, "--status", "dead_letter", "--yes")
    assert [result["outcome"] for result in answer["results"]] == ["retried"] * 6
    assert here.answer("cancel", queue, "--domain", "fragile", "--yes")["matched"] == 12
    assert counts(here, queue) == {"cancelled": 12}


def test_tasks_that_cannot_be_retried_are_named_and_the_others_are_retried(here: Here, tmp_path: Path) -> None:
    file, fragile = tmp_path / "tasks.db", Fragile()

    async def held() -> list[int]:
        async with Scheduler(file, domains=[fragile.domain]) as scheduler:
            handles = [await fragile.work.options(key=f"k{n}").submit(n) for n in range(3)]
            await scheduler.run_until_idle()
            await fragile.work.options(key="k1").submit(1)
            return [handle.id for handle in handles]

    ids = asyncio.run(held())
    done = here.run("retry", file, "--domain", "fragile", "--yes")
    assert (done.code, done.out) == (1, "2 dead letters returned to the queue\n")
    assert f"task {ids[1]}" in done.wrong
    assert "holds the key" in done.wrong
    refused = here.run("retry", file, ids[1], ids[0], 99)
    assert refused.code == 1
    assert "not a dead letter" in refused.wrong
    assert "no task has the id 99" in refused.wrong


# Asking


@pytest.mark.parametrize("command", COMMANDS)
def test_without_a_terminal_nothing_happens_before_yes(here: Here, queue: Path, command: str) -> None:
    before = here.answer("ls", queue)
    said = here.refusal(command, queue, *COMMANDS[command][0], code=1)
    assert "6 " in said
    assert "add --yes" in said
    assert "--dry-run" in said
    assert here.answer("ls", queue) == before


@pytest.mark.one_engine("no store is changed")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["retry", "FILE"], "--status dead_letter"),
        (["cancel", "FILE"], "--status pending"),
        (["priority", "FILE", "--domain", "x"], "a priority is a number"),
        (["priority", "FILE"], "after FILE"),
        (["retry", "FILE", 1, "--domain", "x"], "not both"),
        (["retry", "FILE", 1, "--limit", 5], "--limit needs another filter"),
        (["retry", "FILE", 1, "--dry-run"], "taskmill show"),
        (["retry", "FILE", "--status", "completed"], "dead letters"),
        (["cancel", "FILE", "--status", "completed"], "active tasks"),
        (["retry", "FILE", "--limit", 5], "give the ids"),
        (["retry", "FILE", "--domain", "x", "--limit", -1], "at least 0"),
        (["retry", "FILE", "--tag", "x"], "NAME=VALUE"),
        (["retry", "FILE", "--since", "yesterday"], "2h"),
        (["retry", "FILE", "--older", "2020-99-99"], "2030-01-31T18:30"),
        (["retry", "FILE", "--older", "99999999d"], "--older"),
        (["retry", "FILE", "x"], "whole number"),
    ],
    ids=_words,
)
def test_a_wrong_command_line_says_what_to_do(here: Here, template: Path, words: list[Any], said: str) -> None:
    assert said in here.refusal(*(template if word == "FILE" else word for word in words), code=2)


@needs_a_terminal
@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("Yes\n", 0), ("n\n", 1), ("\n", 1), ("", 1), ("what\n", 1)])
@pytest.mark.one_engine("the terminal is what is tested")
def test_on_a_terminal_the_command_asks_first(here: Here, queue: Path, answer: str, code: int) -> None:
    with on_terminal(queue.parent, "retry", queue, "--status", "dead_letter") as terminal:
        seen = terminal.until("[y/N]")
        assert "6 dead letters match" in seen
        assert "1: refused" in seen
        assert "… and 1 more" in seen
        terminal.type(answer)
        seen = terminal.rest()
        assert terminal.process.wait() == code
    assert ("6 dead letters returned to the queue" in seen) == (code == 0)
    assert ("nothing was changed" in seen) == (code == 1)
    assert counts(here, queue) == ({"pending": 12} if code == 0 else {"pending": 6, "dead_letter": 6})


@needs_a_terminal
@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.one_engine("the terminal is what is tested")
async def test_long_names_and_wide_characters_fit_on_the_terminal(tmp_path: Path, columns: int) -> None:
    file = tmp_path / "tasks.db"
    await fill(file, dead=1, long=2)
    with on_terminal(tmp_path, "retry", file, "--domain", "fragile", columns=columns) as terminal:
        seen = await asyncio.to_thread(terminal.until, "[y/N]")
        terminal.type("n\n")
        await asyncio.to_thread(terminal.rest)
    lines = without_colours(seen).splitlines()
    assert max(map(cell_len, lines)) <= columns
    rows = [line.split() for line in lines if "fragile::" in line]
    assert [row[0] for row in rows] == ["3", "2", "1"], "the ids are always there"
    assert "見出し" in seen


@needs_a_terminal
@pytest.mark.one_engine("the terminal is what is tested")
async def test_a_bar_shows_the_progress_of_many_tasks(tmp_path: Path) -> None:
    file = tmp_path / "tasks.db"
    await fill(file, dead=250)
    with on_terminal(tmp_path, "retry", file, "--status", "dead_letter", "--yes", columns=80) as terminal:
        seen = without_colours(await asyncio.to_thread(terminal.rest))
        assert terminal.process.wait() == 0
    assert "retrying" in seen
    assert "of 250" in seen
    assert "250 dead letters returned to the queue" in seen


def test_an_interrupted_command_says_how_much_is_done(here: Here, queue: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "BATCH", 2)
    batches: list[Sequence[int]] = []

    async def do(scheduler: Scheduler, ids: Sequence[int], filters: dict[str, Any]) -> list[bulk.Result]:
        batches.append(ids)
        if len(batches) == 2:
            raise KeyboardInterrupt
        return await really(scheduler, ids, filters)

    really = retry.ACTION.do
    monkeypatch.setattr(retry, "ACTION", dataclasses.replace(retry.ACTION, do=do))
    done = here.run("retry", queue, "--status", "dead_letter", "--yes")
    assert done.code == 130
    assert "interrupted after 2 of 6 dead letters; run the same command again" in done.wrong
    assert counts(here, queue) == {"pending": 8, "dead_letter": 4}
