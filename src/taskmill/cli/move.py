"""``taskmill move``: a queue with its history goes to another store, and back."""

from __future__ import annotations

import argparse
import contextlib
import shlex
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from datetime import UTC, datetime

from taskmill import StoreError, moving
from taskmill.cli import machine_output, screen, words
from taskmill.cli.refusal import DONE, INTERRUPTED, WRONG, Refusal
from taskmill.cli.store_file import chosen_file, shown
from taskmill.moving import Moved, Step

SUMMARY = "Move a queue with its history to another file or database"

LINE_INTERVAL = 5.0
"""Seconds between two lines about one phase, where there is no live view."""
OBJECT_INTERVAL = 1.0

_VERBS = {"copying": "copied", "comparing": "compared"}

View = Callable[[Step], None]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", metavar="SOURCE", help="the store it is in: a file, or postgresql://…")
    parser.add_argument("target", metavar="TARGET", help="a new file, or an empty database or schema")
    parser.add_argument("--undo", action="store_true", help="give up a move that has not ended: SOURCE is used again")
    parser.add_argument(
        "--target-is-lost",
        action="store_true",
        help="with --undo: TARGET is gone for good; SOURCE is used again as it was when it was moved",
    )
    parser.add_argument("--plain", action="store_true", help="lines in place of the live bar")


def execute(arguments: argparse.Namespace) -> int:
    source = chosen_file(arguments.source)
    if arguments.undo:
        return _undo(source, arguments)
    if arguments.target_is_lost:
        raise Refusal("--target-is-lost goes with --undo", WRONG)
    try:
        with contextlib.ExitStack() as stack:
            view = _Objects() if arguments.json else _chosen_view(stack, plain=arguments.plain)
            moved = moving.move(source, arguments.target, watch=view)
    except KeyboardInterrupt:
        screen.complain("interrupted; nothing is lost: the same command goes on, and with --undo gives the move up")
        return INTERRUPTED
    if arguments.json:
        machine_output.print_line({"event": "moved", **_document(moved)})
    else:
        _tell(moved, shown(arguments.source), shown(arguments.target))
    return DONE


def _undo(source: str, arguments: argparse.Namespace) -> int:
    try:
        to = moving.undo(source, None if arguments.target_is_lost else arguments.target)
    except StoreError as wrong:
        if arguments.target_is_lost or type(wrong) is not StoreError:
            raise
        raise Refusal(
            f"{wrong}. TARGET has to be asked; if it is lost for good, add --target-is-lost", WRONG
        ) from wrong
    if arguments.json:
        machine_output.print_document({"event": "undone", "source": source, "target": to})
    else:
        screen.say(f"{source} is used again; its move to {to} is given up")
    return DONE


def _document(moved: Moved) -> dict[str, object]:
    return {
        "source": moved.source,
        "target": moved.target,
        "at": datetime.fromtimestamp(moved.at / 1000, UTC),
        "before": moved.before,
        "rows": moved.rows,
    }


def _tell(moved: Moved, source: str, target: str) -> None:
    """In the words of whoever typed the command: they can be typed again."""
    if moved.before:
        at = datetime.fromtimestamp(moved.at / 1000).astimezone()
        screen.say(f"{source} was moved to {target} before ({at:%Y-%m-%d %H:%M:%S}); there is nothing to do")
        return
    screen.say(f"moved {source} to {target}; every row was read again in both and is the same:")
    shown = [[words.spoken(name), f"{count:,}"] for name, count in moved.rows.items() if count]
    screen.table(["what", "rows"], shown, numbers=frozenset({"rows"}))
    screen.paragraph("Start your programs on the new store now. The old one is kept as it is, and refuses to be used.")
    screen.say("To bring the queue back:")
    # On a line of its own, however long, so that it can be copied.
    screen.say(f"  taskmill move {shlex.quote(target)} {shlex.quote(source)}")


def _chosen_view(stack: contextlib.ExitStack, *, plain: bool) -> View:
    if plain or not screen.is_terminal():
        return _Lines()
    if not screen.has_rich():
        screen.complain(f"the live bar needs rich: {screen.INSTALL_RICH}; going on in plain lines")
        return _Lines()
    from taskmill.cli.move_view import MoveView

    return stack.enter_context(MoveView())


def about(step: Step) -> str:
    percent = "" if not step.total else f" ({step.done * 100 // step.total} %)"
    return f"{_VERBS[step.phase]} {step.done:,} of {step.total:,} rows{percent}"


class _Calm(ABC):
    """Passes on the first step of each phase, one now and then, and the last."""

    interval = LINE_INTERVAL

    def __init__(self) -> None:
        self._phase: str | None = None
        self._next = 0.0

    def __call__(self, step: Step) -> None:
        is_first, now = step.phase != self._phase, time.monotonic()
        is_last = step.done == step.total and self._next != float("inf")
        if is_first or is_last or now >= self._next:
            self._next = float("inf") if is_last else now + self.interval
            self.show(step, is_first=is_first)
        self._phase = step.phase

    @abstractmethod
    def show(self, step: Step, *, is_first: bool) -> None: ...


class _Lines(_Calm):
    """For pipes and logs."""

    def show(self, step: Step, *, is_first: bool) -> None:
        if is_first and step.phase == "copying" and step.done:
            screen.say("going on with a move that was interrupted")
        screen.say(f"{datetime.now().astimezone():%H:%M:%S} {about(step)}")


class _Objects(_Calm):
    """One object per line, for programs."""

    interval = OBJECT_INTERVAL

    def show(self, step: Step, *, is_first: bool) -> None:  # noqa: ARG002
        machine_output.print_line(
            {"event": step.phase, "table": step.table, "done": step.done, "total": step.total, "at": datetime.now(UTC)}
        )
