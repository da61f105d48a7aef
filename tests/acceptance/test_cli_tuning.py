"""``taskmill why``, and the commands that change priorities, rates and pauses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.acceptance.command_line import Here
from tests.both_engines import name_of

pytestmark = pytest.mark.timeout(40)


# Why


def test_why_says_it_in_a_sentence_with_its_holds_below(here: Here, template: Path) -> None:
    sentence, blank, headings, *rest = here("why", template, 5).splitlines()
    assert sentence.startswith("Task 5 (sync::send) is pending: no scheduler runs the tasks of this store now")
    assert blank == ""
    assert headings.split() == ["held", "by", "because"]
    assert rest[0].startswith("no dispatcher  no scheduler runs")
    assert [line.split("  ")[0] for line in rest[-4:]] == [
        "effective priority",
        "tasks ahead",
        "deadline",
        "estimated start",
    ]
    assert rest[-4].endswith("100")

    document = here.answer("why", template, 5)
    assert document["task_id"] == 5
    assert document["status"] == "pending"
    assert document["holds"][0]["reason"] == "no_dispatcher"
    assert document["effective_priority"] == 100
    assert document["ahead"] == 1
    assert document["summary"] == sentence


def test_why_tells_deadline_and_start_of_a_task_that_is_not_due(here: Here, template: Path) -> None:
    text = here("why", template, 6)
    assert "not due  it is due in" in text
    assert "deadline            20" in text
    assert "estimated start     20" in text
    assert here.answer("why", template, 6)["estimated_start"].endswith("+00:00")


def test_why_says_what_became_of_a_task_that_has_ended(here: Here, template: Path) -> None:
    assert here("why", template, 1).startswith("Task 1 (sync::send) ended as completed at 20")
    broken = here("why", template, 3)
    assert "ended as dead_letter" in broken
    assert "ValueError: first line second line" in broken
    assert broken.count("\n") == 1
    assert here.answer("why", template, 1)["holds"] == []


def test_why_refuses_what_it_cannot_answer(here: Here, template: Path) -> None:
    assert here.refusal("why", template, 99, code=1) == "no task has the id 99"
    assert "one id" in here.refusal("why", template, 1, 2, code=2)
    assert "whole number" in here.refusal("why", template, "four", code=2)


# Pauses


def test_pausing_everything_is_seen_everywhere_and_undone(here: Here, file: Path) -> None:
    assert here("pause", file) == "the scheduler is paused until it is resumed\n"
    assert "paused      the scheduler\n" in here("status", file)
    assert "the scheduler is paused: nothing starts" in here("groups", file)
    assert "scheduler paused  the scheduler has been paused since" in here("why", file, 5)
    assert here.answer("status", file)["paused"] is True
    assert here("resume", file) == "the scheduler is resumed\n"
    assert here("resume", file) == "the scheduler was not paused\n"
    assert "paused  " not in here("status", file)


def test_one_domain_can_be_paused(here: Here, file: Path) -> None:
    assert here("pause", file, "--domain", "sync") == "domain sync is paused until it is resumed\n"
    assert here.answer("status", file)["paused_domains"] == ["sync"]
    assert "domain sync is paused" in here("groups", file)
    here("pause", file)
    assert here("resume", file) == "the scheduler is resumed; still paused: domain sync\n"
    assert here.answer("resume", file, "--domain", "sync") == {"paused": False, "domain": "sync", "was_paused": True}
    assert here.refusal("pause", file, "--domain", "snyc", code=2) == "no domain is named 'snyc'"


def test_pausing_is_for_programs_too(here: Here, file: Path) -> None:
    assert here.answer("pause", file) == {"paused": True, "domain": None}
    assert here.answer("pause", file, "--domain", "sync") == {"paused": True, "domain": "sync"}
    assert here.answer("resume", file) == {"paused": False, "domain": None, "was_paused": True}


# Rates


@pytest.mark.parametrize(
    ("text", "permits", "seconds", "said"),
    [
        ("10/s", 10, 1, "10/s"),
        ("100/min", 100, 60, "100/min"),
        ("5 / Hour", 5, 3600, "5/h"),
        ("1/30s", 1, 30, "1/30s"),
        ("3/1.5m", 3, 90, "3/90s"),
        ("1000/d", 1000, 86_400, "1,000/d"),
    ],
)
def test_a_rate_is_written_as_people_say_it(
    here: Here, file: Path, text: str, permits: int, seconds: float, said: str
) -> None:
    assert here("rate", file, "sync::send", text) == f"sync::send starts at most {said}\n"
    (limit,) = here.answer("rate", file)
    assert (limit["kind"], limit["name"], limit["permits"]) == ("type", "sync::send", permits)
    assert limit["rate"] == {"permits": permits, "interval": seconds, "burst": permits}


def test_rates_are_listed_and_lifted(file: Path, here: Here) -> None:
    assert here("rate", file) == "nothing has a rate limit\n"
    assert here("rate", file, "sync::send", "10/s", "--burst", 3) == "sync::send starts at most 10/s burst 3\n"
    here("groups", file, "set", "s3://prod", "--rate", "5/s")
    lines = here("rate", file).splitlines()
    assert [line.split() for line in lines[1:]] == [
        ["5/s", "5", "group", "s3://prod"],
        ["10/s", "burst", "3", "3", "type", "sync::send"],
    ]
    assert here("rate", file, "sync::send", "none") == "sync::send has no rate limit of its own\n"
    assert [limit["kind"] for limit in here.answer("rate", file)] == ["group"]


def test_a_rate_that_makes_no_sense_is_refused(here: Here, template: Path) -> None:
    assert "no task type is named 'send'" in here.refusal("rate", template, "send", "1/s", code=2)
    assert "a rate is written as 10/s" in here.refusal("rate", template, "sync::send", "quick", code=2)
    assert "a rate is written as 10/s" in here.refusal("rate", template, "sync::send", code=2)
    assert "permits must be" in here.refusal("rate", template, "sync::send", "9999999/s", code=2)
    assert "burst must be" in here.refusal("rate", template, "sync::send", "1/s", "--burst", 0, code=2)
    assert "--burst needs" in here.refusal("rate", template, "--burst", 3, code=2)
    assert "takes FILE" in here.refusal("rate", template, "sync::send", "1/s", "2/s", code=2)


# Priorities


def test_a_priority_is_a_number_or_a_name(here: Here, file: Path) -> None:
    assert here("priority", file, 5, "high") == "task 5 now has the priority high; it was 100\n"
    assert here.answer("show", file, 5)["priority"] == 64
    assert here.answer("priority", file, 5, 7) == [{"id": 5, "outcome": "changed", "priority": 7, "previous": 64}]
    assert here.answer("priority", file, 5, "Background")[0]["priority"] == 192
    assert here("priority", file, 4, 5, "low").count("now has the priority low") == 2


def test_a_priority_that_cannot_be_given_is_refused(
    here: Here, template: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "critical, high, normal" in here.refusal("priority", template, 5, "urgent", code=2)
    assert "to 255" in here.refusal("priority", template, 5, 256, code=2)
    assert "no task has the id 99" in here.refusal("priority", template, 99, "low", code=1)
    assert "task 1 is completed" in here.refusal("priority", template, 1, "low", code=1)
    assert "after FILE" in here.refusal("priority", template, code=2)
    monkeypatch.setenv("TASKMILL_STORE", name_of(template))
    assert json.loads(here("priority", 5, 100, "--json"))[0]["previous"] == 100
