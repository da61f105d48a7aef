"""The parser of the command line: help grouped by purpose, and errors that suggest what was meant."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn

from taskmill.cli import cells, output
from taskmill.cli.output import WRONG, Refusal

WIDEST = 100

DESCRIPTION = "Durable background tasks in an SQLite file or a PostgreSQL database."
EPILOGUE = (
    "STORE is a file or postgresql://…; without it, $TASKMILL_STORE is used. `taskmill COMMAND --help` explains a"
    " command; --json prints JSON for programs; --version prints the version."
)


class _Help(argparse.HelpFormatter):
    """The help of a command. argparse itself would find the width with shutil, which loads every compression."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=output.terminal_width() - 2)


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line with a suggestion, and not the whole usage."""

    def __init__(self, **options: Any) -> None:
        super().__init__(formatter_class=_Help, **options)

    _commands: argparse._SubParsersAction[Parser]

    def add_commands(self) -> argparse._SubParsersAction[Parser]:
        """Return where the parsers of the commands are added."""
        self._commands = self.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=Parser)
        return self._commands

    def error(self, message: str) -> NoReturn:
        """Raise ``Refusal`` for a wrong argument; argparse calls this."""
        raise Refusal(f"{message}.{self._suggestion(message)} See {self.prog} --help", WRONG)

    def _suggestion(self, message: str) -> str:
        """Return what a wrong choice was probably meant to be."""
        argument, found, rest = message.partition("invalid choice: ")
        given = rest.partition(" (choose from")[0].strip("'\"") if found else ""
        meant = [action for action in self._actions if all(name in argument for name in action.option_strings)]
        choices = [str(choice) for action in meant for choice in action.choices or ()]
        return did_you_mean(given, choices) if given else ""

    def commands(self) -> list[Parser]:
        """Return the parsers of the commands."""
        return list(self._commands.choices.values())

    def positionals(self) -> list[argparse.Action]:
        """Return the arguments that are no options and have no fixed choices."""
        return [action for action in self._actions if not action.option_strings and action.choices is None]

    def options_first(self, words: Sequence[str]) -> list[str]:
        """Return the words of a command with its options first, so that they may stand anywhere among the others.

        argparse matches all positional arguments at the first of them: an option after FILE would end the list. Its
        parser for mixed arguments is not for commands of commands. After ``--`` no word is an option.
        """
        options: list[str] = []
        others: list[str] = []
        left = list(words)
        while left:
            word = left.pop(0)
            if word == "--":
                others += left
                break
            if not self._is_option(word):
                others.append(word)
                continue
            options.append(word)
            if left and self._takes_next(word) and left[0] != "--" and not self._is_option(left[0]):
                options.append(left.pop(0))
        # Without the separator, an option whose value is missing would take the first of the others.
        return [*options, *(["--", *others] if others else [])]

    def _is_option(self, word: str) -> bool:
        """True if argparse takes the word as an option, known or not: ``-5`` and ``-5 or more`` are none."""
        if len(word) < 2 or not word.startswith("-"):
            return False
        return bool(self._named_by(word)) or not (self._negative_number_matcher.match(word) or " " in word)

    def _takes_next(self, option: str) -> bool:
        """True if the value of an option is the word after it."""
        return "=" not in option and any(action.nargs != 0 for action in self._named_by(option))

    def _named_by(self, word: str) -> list[argparse.Action]:
        """Return the options that a word names, in full or by their beginning."""
        known, name = self._option_string_actions, word.partition("=")[0]
        if name in known:
            return [known[name]]
        return [action for option, action in known.items() if name.startswith("--") and option.startswith(name)]

    def check_options(self, unknown: Sequence[str]) -> None:
        """Raise ``Refusal`` if there are arguments that the parser does not know."""
        if not unknown:
            return
        word = unknown[0].partition("=")[0]
        known = [option for action in self._actions for option in action.option_strings]
        kind = "option" if word.startswith("-") else "argument"
        meant = did_you_mean(word, known) if kind == "option" else ""
        raise Refusal(f"{self.prog} has no {kind} {word}.{meant} See {self.prog} --help", WRONG)


def did_you_mean(given: str, known: Iterable[str]) -> str:
    """Return a suggestion such as `` Did you mean status or stats?``, or nothing if no known word is close."""
    import difflib  # only a mistake needs it

    words = list(known)
    begun = [word for word in words if word.startswith(given)] if len(given) > 2 else []
    close = begun[:2] or difflib.get_close_matches(given, words, n=2, cutoff=0.6)
    return f" Did you mean {' or '.join(close)}?" if close else ""


def command_help(summaries: Mapping[str, str], purposes: Mapping[str, Sequence[str]]) -> str:
    """Return the help of the whole program: the commands by purpose, in lines that fit the terminal."""
    width = min(output.terminal_width(), WIDEST)
    listed = {name for names in purposes.values() for name in names}
    groups = {**purposes, "Other": [name for name in summaries if name not in listed]}
    column = max(map(len, summaries)) + 4
    lines = ["usage: taskmill COMMAND [STORE] [options]", "", *cells.wrapped(DESCRIPTION, width), ""]
    for purpose, names in groups.items():
        known = [name for name in names if name in summaries]
        if known:
            lines.append(output.styled(purpose, "bold"))
        for name in known:
            first, *more = cells.wrapped(summaries[name], width - column)
            lines.append(f"  {name}".ljust(column) + first)
            lines += [" " * column + line for line in more]
        if known:
            lines.append("")
    return "\n".join([*lines, *cells.wrapped(EPILOGUE, width)])


class CommandHelp(argparse._HelpAction):
    """Prints the help of the whole program, for ``taskmill --help``."""

    def __call__(self, *_: object) -> NoReturn:
        from taskmill.cli.commands import PURPOSES, SUMMARIES

        output.say_printable(command_help(SUMMARIES, PURPOSES))
        sys.exit(0)
