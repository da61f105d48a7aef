"""``taskmill errors``: show what went wrong, in groups, or in each attempt of one task."""

from __future__ import annotations

import argparse

from taskmill.cli import output, quantities, tables
from taskmill.cli.output import DONE, WRONG, Refusal
from taskmill.cli.store_file import VARIABLE, chosen_file, chosen_file_and_id
from taskmill.cli.views.attempt_errors import HEADINGS, LONG, NUMBERS, attempt_lines, group_rows
from taskmill.reading import ask


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file_and_id",
        nargs="*",
        metavar="FILE ID",
        help=f"the database (default: ${VARIABLE}); with the id of a task, each of its attempts with the traceback",
    )
    parser.add_argument("--since", metavar="TIME", help="only errors since then: 2h for two hours ago")


def execute(arguments: argparse.Namespace) -> int:
    words: list[str] = arguments.file_and_id
    since = None if arguments.since is None else quantities.duration(arguments.since, "--since")
    if len(words) > 1 or (words and words[0].isascii() and words[0].isdigit()):
        if since is not None:
            raise Refusal("--since is for groups of errors; leave out the id, or --since", WRONG)
        file, id = chosen_file_and_id(words, "errors")
        record = ask(file, lambda reader: reader.get(id))
        if arguments.json:
            output.print_json(record.errors)
        elif not record.errors:
            output.say(f"no attempt of task {id} has failed")
        else:
            for line in attempt_lines(record.errors, tracebacks=True):
                output.say(line)
        return DONE
    groups = ask(chosen_file(words[0] if words else None), lambda reader: reader.error_groups(since))
    if arguments.json:
        output.print_json(groups)
    elif not groups:
        output.say("no attempt has failed" if since is None else f"no attempt has failed in the last {arguments.since}")
    else:
        tables.table(HEADINGS, group_rows(groups), numbers=NUMBERS, middle=LONG)
    return DONE
