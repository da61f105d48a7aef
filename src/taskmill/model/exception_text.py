"""Turn an exception into text that any store and any log can hold."""

from __future__ import annotations

LONGEST = 10_000


def message_of(wrong: BaseException) -> str:
    """Return the message of an exception, whatever its ``__str__`` does."""
    try:
        # __str__ may return a subclass of str with its own behaviour; joining makes a plain str.
        said = "".join(list(str(wrong)))
    except BaseException as broken:  # noqa: BLE001 - __str__ is user code, and must not break the caller
        said = f"(its message could not be read: {type(broken).__name__})"
    printable = said.encode("utf-8", "replace").decode().replace("\0", "\\0")
    return printable if len(printable) <= LONGEST else printable[:LONGEST] + "…"


def exception_text(wrong: BaseException) -> str:
    """Return the type and message, such as ``ValueError: message``."""
    said = message_of(wrong)
    return f"{type(wrong).__name__}: {said}" if said else type(wrong).__name__
