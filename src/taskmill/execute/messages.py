"""What a scheduler and a worker process say to each other: JSON messages, each behind its length."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from taskmill.define.task import PartName
from taskmill.execute.handler_address import Address
from taskmill.model.options import decoded_options
from taskmill.model.outcome import Failed, GaveUp, Interrupted, RawOutcome, Succeeded
from taskmill.model.progress import ProgressReport
from taskmill.model.records import HistoryRecord, TaskRecord
from taskmill.model.stages import Stored
from taskmill.model.submission import Submission

LENGTH_BYTES = 4

_ANSWERS: dict[str, type[RawOutcome]] = {kind.__name__: kind for kind in (Succeeded, Failed, GaveUp, Interrupted)}


class Call(msgspec.Struct, tag=True):
    """To the worker: run this handler. ``record`` lacks the payload, which travels as text, once."""

    handler: Address
    part: PartName
    payload: str
    saved: str | None
    replaced: str | None
    record: TaskRecord | None
    children: Sequence[HistoryRecord]


class SaveAnswer(msgspec.Struct, tag=True):
    """To the worker: the save is durable, or was refused."""

    number: int
    refused: str | None


class SpawnAnswer(msgspec.Struct, tag=True):
    """To the worker: the tasks are stored, or were refused."""

    number: int
    stored: list[Stored]
    refused: str | None


class Reported(msgspec.Struct, tag=True):
    """From the worker: progress."""

    progress: ProgressReport


class SaveRequest(msgspec.Struct, tag=True):
    """From the worker: make this durable and answer."""

    number: int
    saved: str


class WireSubmission(msgspec.Struct):
    """A submission; its payload either encoded and checked, or as it was given."""

    type: str
    encoded: str | None
    payload: dict[str, Any]
    options: dict[str, Any]

    @classmethod
    def of(cls, submission: Submission) -> WireSubmission:
        payload = {} if submission.encoded is not None else dict(submission.payload)
        return cls(submission.type, submission.encoded, payload, dict(submission.options))

    def unpacked(self) -> Submission:
        options = decoded_options(self.options)
        if self.encoded is not None:
            return Submission.prepared(self.type, msgspec.json.decode(self.encoded), options, self.encoded)
        submission = Submission(self.type, self.payload)
        submission.options = options
        return submission


class SpawnRequest(msgspec.Struct, tag=True):
    """From the worker: store these children, or siblings, and answer."""

    number: int
    sibling: bool
    submissions: list[WireSubmission]


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


ToWorker = Call | SaveAnswer | SpawnAnswer
FromWorker = Reported | SaveRequest | SpawnRequest | Answer

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
