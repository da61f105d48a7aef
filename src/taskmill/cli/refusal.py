"""Exit codes, and the exception that ends a command with a sentence on stderr."""

from __future__ import annotations

from taskmill import AlreadyRunning, InvalidState, StoreBusy, StoreMoved, TaskmillError, TaskNotFound

DONE = 0
REFUSED = 1
"""The command was understood, but there is no such task, a problem was found, or another process dispatches."""
WRONG = 2
"""The command line or the file is wrong; argparse uses the same code."""
INTERRUPTED = 130


class Refusal(Exception):
    """Ends a command: ``main`` prints the message and returns the code."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


def exit_code(wrong: TaskmillError) -> int:
    refused = isinstance(wrong, AlreadyRunning | InvalidState | StoreBusy | StoreMoved | TaskNotFound)
    return REFUSED if refused else WRONG
