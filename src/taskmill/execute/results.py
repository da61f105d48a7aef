"""What a handler returned or raised, as an outcome."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from taskmill.define.signature import LARGEST_PAYLOAD, json_encode
from taskmill.model.outcome import Failed, GaveUp, Interrupted, RawOutcome, Succeeded
from taskmill.model.signals import GiveUp, RetryLater

LONGEST_ERROR = 10_000


def outcome_of_result(result: Any) -> RawOutcome:
    if result is None:
        return Succeeded("null")
    try:
        encoded = json_encode(result)
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as wrong:
        return GaveUp(f"the result cannot be stored as JSON: {wrong}")
    if len(encoded) > LARGEST_PAYLOAD:
        return GaveUp(f"the result is {len(encoded):,} bytes; at most {LARGEST_PAYLOAD:,} can be stored")
    return Succeeded(encoded.decode())


def outcome_of_exception(wrong: BaseException) -> RawOutcome:
    match wrong:
        case asyncio.CancelledError():
            return Interrupted()
        case RetryLater():
            return Failed(error_text(wrong), wrong.after_ms)
        case GiveUp():
            return GaveUp(error_text(wrong))
        case _:
            return Failed(error_text(wrong))


def error_text(wrong: BaseException) -> str:
    """``ValueError: what it said``, in a form any store can hold."""
    try:
        said = str(wrong)
    except Exception as broken:  # noqa: BLE001 - a user's __str__ may do anything
        said = f"(its message could not be read: {type(broken).__name__})"
    signal = isinstance(wrong, RetryLater | GiveUp)
    text = said if signal and said else f"{type(wrong).__name__}: {said}" if said else type(wrong).__name__
    printable = text.encode("utf-8", "replace").decode().replace("\0", "\\0")
    return printable if len(printable) <= LONGEST_ERROR else printable[:LONGEST_ERROR] + "…"
