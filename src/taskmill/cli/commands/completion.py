"""``taskmill completion``: print a script that completes commands, options and files in a shell."""

from __future__ import annotations

import argparse

from taskmill.cli import output
from taskmill.cli.output import DONE, INSTALL_CLI, WRONG, Refusal

SHELLS = ("bash", "zsh", "fish")
INSTALLED_BY = {
    "bash": 'eval "$(taskmill completion bash)" in ~/.bashrc',
    "zsh": "taskmill completion zsh > a file _taskmill in a folder of $fpath",
    "fish": "taskmill completion fish > ~/.config/fish/completions/taskmill.fish",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=SHELLS, metavar="SHELL", help=", ".join(SHELLS))
    parser.epilog = "Install: " + "; ".join(INSTALLED_BY.values()) + "."


def execute(arguments: argparse.Namespace) -> int:
    try:
        import shtab
    except ImportError:
        raise Refusal(f"completion needs shtab: {INSTALL_CLI}", WRONG) from None
    if arguments.shell not in shtab.SUPPORTED_SHELLS:
        raise Refusal(f"the installed shtab does not know {arguments.shell}: pip install --upgrade shtab", WRONG)
    from taskmill.cli import parser

    every = parser()
    for command in every.commands():
        for action in command.positionals():
            action.complete = shtab.FILE  # type: ignore[attr-defined]
    script = shtab.complete(every, arguments.shell)
    if arguments.json:
        output.print_json({"shell": arguments.shell, "script": script})
    else:
        output.say_script(script)
    return DONE
