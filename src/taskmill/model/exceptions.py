"""The exceptions that a handler raises to control retries, and the text of any exception."""

from __future__ import annotations

from taskmill.model.durations import Duration, optional_milliseconds


class RetryLater(Exception):
    """Fail this attempt and retry: after ``after`` if given, else by the policy."""

    def __init__(self, message: str = "", after: Duration | None = None) -> None:
        super().__init__(message)
        self.after = after
        self.after_ms = optional_milliseconds(after, "after")


class GiveUp(Exception):
    """End the task as failed, without a retry."""


LONGEST_MESSAGE = 10_000


def message_of(wrong: BaseException) -> str:
    """Return the message of an exception, whatever its ``__str__`` does."""
    try:
        # __str__ may return a subclass of str with its own behaviour; joining makes a plain str.
        said = "".join(list(str(wrong)))
    except BaseException as broken:  # noqa: BLE001 - __str__ is user code, and must not break the caller
        said = f"(its message could not be read: {type(broken).__name__})"
    printable = said.encode("utf-8", "replace").decode().replace("\0", "\\0")
    return printable if len(printable) <= LONGEST_MESSAGE else printable[:LONGEST_MESSAGE] + "…"


def exception_text(wrong: BaseException) -> str:
    """Return the type and message, such as ``ValueError: message``."""
    name, said = class_name(wrong), message_of(wrong)
    return f"{name}: {said}" if said else name


def class_name(wrong: BaseException) -> str:
    """Return the name of the class of an exception, whatever its metaclass does."""
    name: str = type.__dict__["__name__"].__get__(type(wrong))
    return name
