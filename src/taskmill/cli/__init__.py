"""The command line: one parser for all commands, and the exit code of each.

``commands/`` has one module per command, ``views/`` draws on terminals, ``demo/`` is the workload of ``taskmill demo``.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from io import TextIOWrapper

from taskmill import TaskmillError, __version__
from taskmill.cli import output
from taskmill.cli.commands import MEANT, PURPOSES, SUMMARIES, load
from taskmill.cli.output import DONE, INTERRUPTED, WRONG, Refusal, complain, exit_code
from taskmill.cli.parser import CommandHelp, Parser, command_help, did_you_mean

IN_OPTIONS = {
    "run(standby=True) or running(standby=True)": "--standby",
    "overwrite=True": "--force",
}
"""What the errors of the library advise, and the option of the command line for it."""


def parser(commands: Collection[str] = SUMMARIES) -> Parser:
    """Return the parser of these commands."""
    top = Parser(prog="taskmill", add_help=False)
    top.add_argument("-h", "--help", action=CommandHelp, help="show this help and exit")
    top.add_argument("-V", "--version", action="version", version=f"taskmill {__version__}")
    every = top.add_commands()
    for name, summary in SUMMARIES.items():
        if name in commands:
            one = every.add_parser(name, help=summary, description=f"{summary}.")
            load(name).add_arguments(one)
            one.add_argument("--json", action="store_true", help="print JSON for programs")
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    _replace_unencodable_characters()
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        return _run(words)
    except Refusal as refusal:
        complain(str(refusal))
        return refusal.code
    except TaskmillError as wrong:
        said = str(wrong)
        for advice, option in IN_OPTIONS.items():
            said = said.replace(advice, option)
        complain(said)
        return exit_code(wrong)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        output.discard()
        return DONE


def _run(words: Sequence[str]) -> int:
    if not words:
        output.say_printable(command_help(SUMMARIES, PURPOSES))
        return WRONG
    # The options before a command take no values, so the first other word is the command.
    command = next((word for word in words if not word.startswith("-")), None)
    if command == "help":
        return _run([*(word for word in words if word != "help"), "--help"])
    if command is not None and command not in SUMMARIES:
        meant = next((f" Did you mean {name}?" for name, others in MEANT.items() if command in others), None)
        meant = meant or did_you_mean(command, SUMMARIES)
        raise Refusal(f"there is no command {command!r}.{meant} See taskmill --help", WRONG)
    top = parser([] if command is None else [command])
    if command is not None:
        after = words.index(command) + 1
        words = [*words[:after], *top.commands()[0].options_first(words[after:])]
    given, unknown = top.parse_known_args(words)
    top.commands()[0].check_options(unknown)
    return load(given.command).execute(given)


def _replace_unencodable_characters() -> None:
    """Print a question mark for a character that the terminal's encoding lacks, instead of raising."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")
