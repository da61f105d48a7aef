"""``taskmill forecast`` and ``taskmill simulate``."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from xml.etree import ElementTree

import pytest

from taskmill import Range
from taskmill.cli.commands.forecast import spoken_range
from tests.acceptance.command_line import Here
from tests.acceptance.terminal import needs_a_terminal, without_colours

pytestmark = pytest.mark.timeout(60)


def test_forecast_says_when_groups_types_and_priorities_start_and_end(here: Here, template: Path) -> None:
    shown = here("forecast", template, "--samples", 3, "--seed", 1, "--horizon", "1000d")
    lines = shown.splitlines()
    assert lines[0].startswith("nothing dispatches this store now; ")
    assert lines[1].startswith("all tasks that are active now will have ended ")
    assert lines[3].split() == ["name", "next", "start", "last", "end"]
    assert any(line.startswith("type") and "sync::send" in line for line in lines)
    document = here.answer("forecast", template, "--samples", 3, "--seed", 1)
    assert document["samples"] == 3
    assert "sync::send" in document["types"]


def test_simulate_shows_both_settings_side_by_side(here: Here, template: Path) -> None:
    arguments = ["--slots", 1, "--group", "s3://prod.weight=9", "--group", "s3://prod.cap=1", "--aging", "grace=60"]
    lines = here("simulate", template, *arguments, "--seed", 1).splitlines()
    assert lines[0].split() == ["now", "then"]
    words = [line.rsplit("  ", 2)[0].strip() for line in lines[1:]]
    assert any(word.startswith("wait in s3://prod") for word in words)
    assert any(word.startswith("wait at") for word in words)
    text = "\n".join(lines)
    for fact in ("tasks started", "not started", "deadlines missed", "slots used", "IO", "ends"):
        assert fact in text
    document = here.answer("simulate", template, *arguments)
    assert document["is_exact"] is False
    assert document["before"]["starts"]


def test_simulate_without_settings_shows_one_run_and_how_to_compare(here: Here, template: Path) -> None:
    lines = here("simulate", template).splitlines()
    assert lines[0].split() == ["now"]
    assert any(line.startswith("tasks started") for line in lines)
    assert lines[-1].startswith("to compare, add settings to try: --slots 16")
    assert lines[-1].endswith("taskmill simulate --help lists them")


def test_simulate_notes_a_group_to_resume_that_is_not_known(here: Here, template: Path) -> None:
    shown = here("simulate", template, "--resume", "nosuch", "--resume", "s3://prod")
    assert shown.endswith("note: no task of group nosuch is known\n")
    assert "group s3://prod is known" not in shown


@needs_a_terminal
def test_simulate_keeps_an_instant_on_one_line_at_80_columns(here: Here, template: Path) -> None:
    lines = without_colours(here.on_terminal("simulate", template, "--slots", 1, columns=80)).splitlines()
    place, ends = next((place, line) for place, line in enumerate(lines) if line.startswith("ends"))
    assert ends.count("(") == ends.count(")") == 2
    assert not lines[place + 1].startswith("  ")
    assert all(len(line) <= 80 for line in lines)


def test_simulate_replays_the_past_and_draws_a_picture(here: Here, template: Path, tmp_path: Path) -> None:
    picture = tmp_path / "run.svg"
    here("simulate", template, "--slots", 1, "--replay", "1d", "--svg", picture)
    assert len(ElementTree.parse(picture).getroot().findall("{http://www.w3.org/2000/svg}polyline")) == 2


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["--slots", "many"], "--slots is a whole number"),
        (["--group", "weight=9"], "--group is written as NAME.FIELD=VALUE"),
        (["--group", "beta.size=9"], "a group has weight, cap, min_slots, rate, not 'size'"),
        (["--aging", "speed=1"], "aging has grace"),
        (["--rate", "sync::send"], "--rate is written as NAME=VALUE"),
        (["--replay", "yesterday"], "--replay"),
        (["--slots", "0"], "max_concurrency must be a whole number"),
    ],
)
def test_wrong_settings_are_named(here: Here, template: Path, given: list[str], told: str) -> None:
    assert told in here.refusal("simulate", template, *given, code=2)


def test_wrong_samples_are_named(here: Here, template: Path) -> None:
    assert here.refusal("forecast", template, "--samples", 0, code=2) == "--samples must be at least 1"


@pytest.mark.one_engine("no store is opened")
def test_a_start_that_has_passed_while_the_forecast_was_made_is_now() -> None:
    now = datetime.now(UTC)
    past, future = now - timedelta(seconds=9), now + timedelta(seconds=600.5)
    assert spoken_range(Range(past, past, past)) == "now"
    assert spoken_range(Range(past, future, None)) == "in 10 min (now to later)"
