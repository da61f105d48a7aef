"""Turn the result or exception of a handler into an outcome. Nothing here raises, whatever the handler's classes do."""

from __future__ import annotations

import asyncio
from typing import Any

from taskmill.define.signature import LARGEST_PAYLOAD, json_encode
from taskmill.model.exception_text import exception_text, message_of
from taskmill.model.outcome import Failed, GaveUp, Interrupted, RawOutcome, Succeeded
from taskmill.model.signals import GiveUp, RetryLater


def outcome_of_result(result: Any) -> RawOutcome:
    if result is None:
        return Succeeded("null")
    try:
        encoded = json_encode(result)
    except BaseException as wrong:  # noqa: BLE001 - a value's own attributes may raise anything
        return GaveUp(f"the result cannot be stored as JSON: {message_of(wrong)}")
    if len(encoded) > LARGEST_PAYLOAD:
        return GaveUp(f"the result is {len(encoded):,} bytes; at most {LARGEST_PAYLOAD:,} can be stored")
    return Succeeded(encoded.decode())


def outcome_of_exception(wrong: BaseException) -> RawOutcome:
    match wrong:
        case asyncio.CancelledError():
            return Interrupted()
        case RetryLater():
            # A subclass may have overridden __init__ without calling super().
            after_ms: object = getattr(wrong, "after_ms", None)
            return Failed(error_text(wrong), after_ms if isinstance(after_ms, int) else None)
        case GiveUp():
            return GaveUp(error_text(wrong))
        case _:
            return Failed(error_text(wrong))


def error_text(wrong: BaseException) -> str:
    """Return ``ValueError: message`` or, for ``RetryLater`` and ``GiveUp``, the message alone."""
    if isinstance(wrong, RetryLater | GiveUp) and (said := message_of(wrong)):
        return said
    return exception_text(wrong)
