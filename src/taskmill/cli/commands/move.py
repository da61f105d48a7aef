"""``taskmill move``: move a queue with its history to another store, or abandon such a move."""

from __future__ import annotations

import argparse
import contextlib
import shlex
import time
from collections.abc import Callable
from datetime import UTC, datetime

from taskmill import StoreError, moving
from taskmill.cli import output, tables, text
from taskmill.cli.output import DONE, INTERRUPTED, WRONG, Refusal
from taskmill.cli.store_file import chosen_file, shown
from taskmill.moving import Moved, Step

LINE_INTERVAL = 5.0
"""Seconds between two lines about one phase."""
OBJECT_INTERVAL = 1.0
FRAME_INTERVAL = 0.1

_VERBS = {"copying": "copied", "comparing": "compared"}

Show = Callable[[Step], None]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", metavar="SOURCE", help="the present store: a file, or postgresql://…")
    parser.add_argument("target", metavar="TARGET", help="a new file, or an empty database or schema")
    parser.add_argument(
        "--undo", action="store_true", help="abandon a move that has not finished: SOURCE is usable again"
    )
    parser.add_argument(
        "--target-is-lost",
        action="store_true",
        help="with --undo: TARGET is lost for good; SOURCE is reopened as it was when it was moved",
    )
    parser.add_argument("--plain", action="store_true", help="lines instead of the live bar")


def execute(arguments: argparse.Namespace) -> int:
    source = chosen_file(arguments.source)
    if arguments.undo:
        return _undo(source, arguments)
    if arguments.target_is_lost:
        raise Refusal("--target-is-lost can only be used with --undo", WRONG)
    try:
        with contextlib.ExitStack() as stack:
            if arguments.json:
                show: Show = _Throttle(_print_object, OBJECT_INTERVAL)
            else:
                show = _chosen_view(stack, plain=arguments.plain)
            moved = moving.move(source, arguments.target, watch=show)
    except KeyboardInterrupt:
        output.complain(
            "interrupted; nothing is lost: run the same command again to resume the move, or with --undo to abandon it"
        )
        return INTERRUPTED
    if arguments.json:
        output.print_json_line({"event": "moved", **_document(moved)})
    else:
        _print(moved, shown(arguments.source), shown(arguments.target))
    return DONE


def _undo(source: str, arguments: argparse.Namespace) -> int:
    try:
        to = moving.undo(source, None if arguments.target_is_lost else arguments.target)
    except StoreError as wrong:
        if arguments.target_is_lost or type(wrong) is not StoreError:
            raise
        raise Refusal(
            f"{wrong}. TARGET must be reachable; if it is lost for good, add --target-is-lost", WRONG
        ) from wrong
    if arguments.json:
        output.print_json({"event": "undone", "source": source, "target": to})
    else:
        output.say(f"{source} is usable again; its move to {to} is abandoned")
    return DONE


def _document(moved: Moved) -> dict[str, object]:
    return {
        "source": moved.source,
        "target": moved.target,
        "at": datetime.fromtimestamp(moved.at / 1000, UTC),
        "before": moved.before,
        "rows": moved.rows,
    }


def _print(moved: Moved, source: str, target: str) -> None:
    """Print the result. The stores are named as they were typed, so that the printed command can be run."""
    if moved.before:
        at = datetime.fromtimestamp(moved.at / 1000).astimezone()
        output.say(f"{source} was already moved to {target} ({at:%Y-%m-%d %H:%M:%S}); there is nothing to do")
        return
    output.say(f"moved {source} to {target}; every row was read again in both and is the same:")
    counts = [[text.spoken(name), f"{count:,}"] for name, count in moved.rows.items() if count]
    tables.table(["what", "rows"], counts, numbers=frozenset({"rows"}))
    output.paragraph("Start your programs on the new store now. The old one is kept unchanged, and cannot be opened.")
    output.say("To bring the queue back:")
    # On one line, however long, so that it can be copied.
    output.say(f"  taskmill move {shlex.quote(target)} {shlex.quote(source)}")


# Showing progress


def _chosen_view(stack: contextlib.ExitStack, *, plain: bool) -> Show:
    if not output.allows_live_view(plain=plain):
        return _Throttle(_Lines(), LINE_INTERVAL)
    from taskmill.cli.views.live import LiveView
    from taskmill.cli.views.move import MoveFrame

    return _Throttle(stack.enter_context(LiveView(MoveFrame(), below=True)).draw, FRAME_INTERVAL)


class _Throttle:
    """Shows the first and the last step of each phase, and in between at most one per ``interval`` seconds."""

    def __init__(self, show: Show, interval: float) -> None:
        self._show = show
        self._interval = interval
        self._phase: str | None = None
        self._next = 0.0

    def __call__(self, step: Step) -> None:
        is_first, now = step.phase != self._phase, time.monotonic()
        is_last = step.done == step.total and self._next != float("inf")
        if is_first or is_last or now >= self._next:
            self._next = float("inf") if is_last else now + self._interval
            self._show(step)
        self._phase = step.phase


class _Lines:
    """Prints a line per step, for pipes and logs."""

    def __init__(self) -> None:
        self._has_begun = False

    def __call__(self, step: Step) -> None:
        if not self._has_begun and step.phase == "copying" and step.done:
            output.say("resuming an interrupted move")
        self._has_begun = True
        percent = "" if not step.total else f" ({step.done * 100 // step.total} %)"
        done = f"{_VERBS[step.phase]} {step.done:,} of {step.total:,} rows{percent}"
        output.say(f"{datetime.now().astimezone():%H:%M:%S} {done}")


def _print_object(step: Step) -> None:
    output.print_json_line(
        {"event": step.phase, "table": step.table, "done": step.done, "total": step.total, "at": datetime.now(UTC)}
    )
