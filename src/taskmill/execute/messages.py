"""What a scheduler and a worker process say to each other: JSON messages, each behind its length."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from taskmill.execute.handler_address import Address
from taskmill.model.outcome import Failed, GaveUp, Interrupted, RawOutcome, Succeeded
from taskmill.model.progress import ProgressReport
from taskmill.model.records import TaskRecord

LENGTH_BYTES = 4

_ANSWERS: dict[str, type[RawOutcome]] = {kind.__name__: kind for kind in (Succeeded, Failed, GaveUp, Interrupted)}


class Call(msgspec.Struct, tag=True):
    """To the worker: run this handler. ``record`` lacks the payload, which travels as text, once."""

    handler: Address
    payload: str
    saved: str | None
    replaced: str | None
    record: TaskRecord | None


class SaveAnswer(msgspec.Struct, tag=True):
    """To the worker: the save is durable, or was refused."""

    number: int
    refused: str | None


class Reported(msgspec.Struct, tag=True):
    """From the worker: progress."""

    progress: ProgressReport


class SaveRequest(msgspec.Struct, tag=True):
    """From the worker: make this durable and answer."""

    number: int
    saved: str


class Answer(msgspec.Struct, tag=True):
    """From the worker: the call is over. ``raised`` and ``traceback`` are for the log."""

    outcome: str
    fields: dict[str, Any]
    raised: str | None = None
    traceback: str | None = None

    @classmethod
    def of(cls, outcome: RawOutcome, raised: str | None = None, traceback: str | None = None) -> Answer:
        return cls(type(outcome).__name__, msgspec.structs.asdict(outcome), raised, traceback)

    def unpacked(self) -> RawOutcome:
        return _ANSWERS[self.outcome](**self.fields)


ToWorker = Call | SaveAnswer
FromWorker = Reported | SaveRequest | Answer

_encode = msgspec.json.Encoder().encode
decode_to_worker = msgspec.json.Decoder(ToWorker).decode
decode_from_worker = msgspec.json.Decoder(FromWorker).decode


def framed(message: ToWorker | FromWorker) -> bytes:
    body = _encode(message)
    return len(body).to_bytes(LENGTH_BYTES, "big") + body


class Unframer:
    """Cuts a stream of bytes into message bodies."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        self._bytes += data
        while len(self._bytes) >= LENGTH_BYTES:
            end = LENGTH_BYTES + int.from_bytes(self._bytes[:LENGTH_BYTES], "big")
            if len(self._bytes) < end:
                return
            body = bytes(self._bytes[LENGTH_BYTES:end])
            del self._bytes[:end]
            yield body
