"""Distinguish an exit of the program from one that a handler raised.

``sys.exit()`` in a handler is a failure of that handler only: other tasks and the event loop continue. The same
exception, raised by a signal handler of the program while a task's code happens to run, means that the program ends.
"""

from __future__ import annotations

import functools
import signal
from types import CodeType


def ends_program(wrong: BaseException) -> bool:
    """True if ``wrong`` comes from a signal handler that ends the program, such as Ctrl-C under ``asyncio.run``."""
    if not isinstance(wrong, SystemExit | KeyboardInterrupt):
        return False
    handlers = {_code(signal.getsignal(number)) for number in signal.valid_signals()}
    trace = wrong.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code in handlers:
            return True
        trace = trace.tb_next
    return False


def _code(handler: object) -> CodeType | None:
    """Return the code that runs for a signal, if it is Python code."""
    while isinstance(handler, functools.partial):
        handler = handler.func  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    for function in (handler, getattr(handler, "__call__", None)):  # noqa: B004 - its method, not whether it has one
        code = getattr(function, "__code__", None)
        if isinstance(code, CodeType):
            return code
    return None
