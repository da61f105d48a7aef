"""Options may stand before, between and after the other arguments of every command."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest

from taskmill.cli import parser
from taskmill.cli.commands import SUMMARIES
from taskmill.cli.parser import Parser
from tests.acceptance.command_line import Here

OTHERS = ["tasks.db", "11", "path=-1", "-5", "-5 or more"]


def parsed(top: Parser, command: str, words: list[str]) -> dict[str, Any]:
    given, unknown = top.parse_known_args([command, *top.commands()[0].options_first(words)])
    assert not unknown
    return vars(given)


def written(action: argparse.Action) -> list[list[str]]:
    """Return the ways to write an option, with a value if it takes one."""
    option = max(action.option_strings, key=len)
    if action.nargs == 0:
        return [[option]]
    value = str(next(iter(action.choices))) if action.choices else "3" if action.type in (int, float) else "high"
    return [[option, value], [f"{option}={value}"]]


def accepted(one: Parser) -> list[str]:
    """Return words for the arguments that are no options, as many as the command takes."""
    words: list[str] = []
    for action in one._get_positional_actions():
        first = str(next(iter(action.choices))) if action.choices else OTHERS[0]
        words += OTHERS if action.nargs in ("*", "+") else [first]
    return words


@pytest.mark.one_engine("no store is opened")
@pytest.mark.parametrize("command", SUMMARIES)
def test_an_option_may_stand_anywhere(command: str) -> None:
    top = parser([command])
    (one,) = top.commands()
    others = accepted(one)
    options = [action for action in one._actions if action.option_strings and action.dest != "help"]
    assert options
    for option in options:
        for words in written(option):
            first = parsed(top, command, [*words, *others])
            for place in range(len(others) + 1):
                mixed = [*others[:place], *words, *others[place:]]
                assert parsed(top, command, mixed) == first, mixed


@pytest.mark.one_engine("no store is opened")
def test_after_two_dashes_no_word_is_an_option() -> None:
    top = parser(["submit"])
    given = parsed(top, "submit", ["tasks.db", "--wait", "--", "sync::send", "--json", "--", "-x"])
    assert given["words"] == ["tasks.db", "sync::send", "--json", "--", "-x"]
    assert (given["wait"], given["json"]) == (True, False)


@pytest.mark.one_engine("no store is opened")
def test_an_option_may_be_abbreviated_anywhere() -> None:
    top = parser(["submit"])
    given = parsed(top, "submit", ["tasks.db", "--prio", "high", "sync::send", "--lab=a b", "--attempt", "3s", "x=1"])
    assert given["words"] == ["tasks.db", "sync::send", "x=1"]
    assert (given["priority"], given["label"], given["attempt_timeout"]) == ("high", "a b", "3s")


@pytest.mark.one_engine("no store is opened")
@pytest.mark.parametrize(
    "words", [["tasks.db", "x::y", "--key"], ["--key", "--json", "tasks.db"], ["--key", "--", "a"]]
)
def test_an_option_without_its_value_takes_no_other_word(here: Here, words: list[str]) -> None:
    assert "argument --key: expected one argument" in here.refusal("submit", *words, code=2)


def test_commands_take_options_between_their_arguments(here: Here, file: Path) -> None:
    def said(*words: object) -> str:
        done = here.run(*words)
        return done.out + done.wrong

    assert '"id": 1,' in here("show", file, "--json", "1")
    assert "the task would be stored" in here("submit", file, "--dry-run", "sync::send", "path=x")
    assert "the task would be stored" in here("submit", file, "sync::send", "--dry-run", "path=x")
    assert "task 1 is completed, not a dead letter" in said("retry", file, "--plain", "1")
    assert "match" in here("priority", file, "--type", "sync::send", "high", "--dry-run")
    assert '"cap": 3' in here("groups", file, "--json", "set", "big", "--cap", "3")
    assert "no cron task is named 'tidy'" in said("cron", file, "--json", "run", "tidy")
    assert "at most 5/s" in here("rate", file, "sync::send", "--burst", "2", "5/s")
    assert "sync::send" in here("stats", file, "--json", "sync::send")
