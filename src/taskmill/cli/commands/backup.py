"""``taskmill backup``: copy the file of a queue while programs use it."""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import Callable, Generator

from taskmill.cli import output, text
from taskmill.cli.output import DONE, WRONG, Refusal
from taskmill.cli.store_file import VARIABLE, chosen_file


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "taskmill backup [-h] [--force] [--plain] [--json] [FILE] COPY"
    parser.add_argument(
        "words",
        nargs="+",
        metavar="FILE COPY",
        help=f"the database (may be left out when ${VARIABLE} is set), and the name of the new file",
    )
    parser.add_argument("--force", action="store_true", help="replace COPY if it exists")
    parser.add_argument("--plain", action="store_true", help="no progress bar")


def execute(arguments: argparse.Namespace) -> int:
    *given, copy = arguments.words
    if len(given) > 1:
        raise Refusal("backup takes the database and the name of the new file", WRONG)
    if not given and not os.environ.get(VARIABLE):
        raise Refusal(f"give the database and the name of the new file, or set {VARIABLE}", WRONG)
    file = chosen_file(given[0] if given else None)
    from taskmill import backup

    with _bar(plain=arguments.plain or arguments.json) as watch:
        made = backup.back_up(file, copy, overwrite=arguments.force, watch=watch)
    if arguments.json:
        output.print_json(
            {"store": file, "file": made.file, "bytes": made.bytes, "schema": made.schema, "rows": made.rows}
        )
        return DONE
    active, ended = made.rows.get("taskmill_task", 0), made.rows.get("taskmill_history", 0)
    output.say(f"copied {file} to {made.file} and checked the copy")
    output.say(
        f"it has {text.plural(active, 'active task')} and {text.plural(ended, 'ended task')}, "
        f"in {text.size(made.bytes)}, with schema {made.schema}"
    )
    return DONE


@contextlib.contextmanager
def _bar(*, plain: bool) -> Generator[Callable[[int, int], None], None, None]:
    if not output.allows_live_view(plain=plain):
        yield lambda _done, _total: None
        return
    from taskmill.cli.views.bar import bar

    with bar("copying", text.size) as draw:
        yield draw
