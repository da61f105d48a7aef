"""What is kept of an exception: the name of its class, where it was raised, and its traceback as text.

The traceback starts at the program's own frames: the frames above them are those of taskmill and of the event loop or
thread that calls the handler, and are the same for every task. Causes, contexts, groups and notes are kept.

An exception whose own methods raise is still described. Every engine can store the text.
"""

from __future__ import annotations

import os
from traceback import FrameSummary, StackSummary, TracebackException
from types import TracebackType

from taskmill.core.exits import ends_program
from taskmill.model.attempt import ErrorDetails
from taskmill.model.exceptions import class_name

LONGEST_TRACEBACK = 16 * 1024
"""In bytes, as UTF-8."""
LONGEST_NAME = 100
"""Characters of a class name, and of a location: PostgreSQL refuses long values in an index."""
MOST_FRAMES = 1000
"""At most this many frames are formatted, because each takes time: a program may raise the recursion limit."""

_LONGEST_LINE = 200

_TASKMILL = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_STANDARD_LIBRARY = os.path.dirname(os.path.abspath(os.__file__))
_EXECUTORS = os.path.join(_TASKMILL, "execute", "")
_PLUMBING = (
    *(os.path.join(_TASKMILL, folder, "") for folder in ("core", "define", "observe", "runtime")),
    *(os.path.join(_STANDARD_LIBRARY, folder, "") for folder in ("asyncio", "concurrent")),
    *(os.path.join(_STANDARD_LIBRARY, file) for file in ("threading.py", "contextlib.py")),
)
"""The code between the thread, or the event loop, and the handler."""
_PACKAGES = tuple(f"{os.sep}{folder}{os.sep}" for folder in ("site-packages", "dist-packages"))
"""The folders of installed packages, wherever they are."""


def own_traceback(wrong: BaseException) -> TracebackType | None:
    """Return the traceback of an exception from the first frame of the program's own code, for the log.

    If it has no such frame, the exception was raised by taskmill itself: return all of it.
    """
    frame = wrong.__traceback__
    while frame is not None and frame.tb_frame.f_code.co_filename.startswith((_EXECUTORS, *_PLUMBING)):
        frame = frame.tb_next
    return frame or wrong.__traceback__


def details_of(wrong: BaseException) -> ErrorDetails:
    """Return what is kept of an exception besides its message."""
    try:
        return _details(wrong)
    except BaseException as broken:
        if ends_program(broken):
            raise
        # The exception's own methods may raise anything.
        return ErrorDetails(_name(wrong), None, f"(its traceback could not be formatted: {type(broken).__name__})")


def _details(wrong: BaseException) -> ErrorDetails:
    told = TracebackException.from_exception(wrong, lookup_lines=False)
    todo, seen = [told], set[int]()
    while todo:
        each = todo.pop()
        if id(each) not in seen:
            seen.add(id(each))
            _trim(each.stack)
            linked = (each.__cause__, each.__context__, *(getattr(each, "exceptions", None) or ()))
            todo += [link for link in linked if link is not None]
    return ErrorDetails(_name(wrong), _location(told.stack), shortened(_storable("".join(told.format()).rstrip())))


def _name(wrong: BaseException) -> str:
    return _storable(class_name(wrong))[:LONGEST_NAME]


def _storable(text: str) -> str:
    return text.encode("utf-8", "replace").decode().replace("\0", "\\0")


def _trim(stack: StackSummary) -> None:
    """Remove the frames above the program's own ones, those of executors, and the middle of a very deep stack."""
    stack[:] = [frame for frame in stack if not frame.filename.startswith(_EXECUTORS)]
    first = next((place for place, frame in enumerate(stack) if not frame.filename.startswith(_PLUMBING)), len(stack))
    del stack[:first]
    if len(stack) > MOST_FRAMES:
        half = MOST_FRAMES // 2
        left_out = FrameSummary(f"({len(stack) - 2 * half:,} frames left out)", 0, "...", line="")
        stack[half:-half] = [left_out]


def _location(stack: StackSummary) -> str | None:
    """Return the innermost frame of the program's own code, such as ``photos.py:31 in resize``.

    A program may be an installed package itself: the package of the first frame counts as its own code too.
    """
    own = {"", *(_package(frame.filename) for frame in stack[:1])}
    for frame in reversed(stack):
        if _package(frame.filename) in own:
            found = f"{os.path.basename(frame.filename)}:{frame.lineno} in {frame.name}"
            return _storable(found)[:LONGEST_NAME]
    return None


def _package(file: str) -> str:
    """Return the installed package that a file belongs to; empty for other code."""
    for folder in _PACKAGES:
        _, found, inside = file.rpartition(folder)
        if found:
            return inside.partition(os.sep)[0]
    for name, folder in (("taskmill", _TASKMILL), ("(standard library)", _STANDARD_LIBRARY)):
        if file.startswith(folder + os.sep):
            return name
    return "(standard library)" if file.startswith("<frozen ") else ""


def shortened(text: str, longest: int = LONGEST_TRACEBACK) -> str:
    """Return the text with its middle cut out, if it is too long, and a line that says how much that was."""
    whole = text.encode()
    if len(whole) <= longest:
        return text
    # The number of digits in the line is the same or smaller than in this one.
    room = longest - len(_cut(len(whole)))
    head = whole[: room // 2].decode("utf-8", "ignore")
    tail = whole[len(whole) - (room - room // 2) :].decode("utf-8", "ignore")
    # Whole lines, unless that would leave out a long one.
    if (end := head.rfind("\n", -_LONGEST_LINE)) >= 0:
        head = head[: end + 1]
    if (start := tail.find("\n", 0, _LONGEST_LINE)) >= 0:
        tail = tail[start + 1 :]
    gone = len(whole) - len(head.encode()) - len(tail.encode())
    return head.removesuffix("\n") + _cut(gone) + tail


def _cut(count: int) -> str:
    return f"\n... {count:,} bytes were cut ...\n"
