"""The messages between a scheduler and a worker process: JSON, each prefixed with its length."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from taskmill import errors
from taskmill.define.signature import encoded_arguments
from taskmill.define.task import PartName
from taskmill.errors import InvalidState, TaskmillError
from taskmill.execute.address import HandlerAddress
from taskmill.execute.work import error_text
from taskmill.model.attempt import Failed, GaveUp, Interrupted, RawOutcome, Succeeded, Unrunnable
from taskmill.model.io_budget import IoBudget
from taskmill.model.options import decoded_options
from taskmill.model.progress import ProgressReport
from taskmill.model.records import HistoryRecord, TaskRecord
from taskmill.model.submission import Stored, Submission

LENGTH_BYTES = 4

_ANSWERS: dict[str, type[RawOutcome]] = {
    kind.__name__: kind for kind in (Succeeded, Failed, GaveUp, Unrunnable, Interrupted)
}


class Call(msgspec.Struct, tag=True):
    """To the worker: run this handler. ``record`` lacks the payload, which is sent once, as text."""

    handler: HandlerAddress
    part: PartName
    payload: str
    saved: str | None
    replaced: str | None
    record: TaskRecord
    children: Sequence[HistoryRecord]


class Refused(msgspec.Struct):
    """The error that a refused request raises in the handler, the same as on the event loop."""

    error: str
    message: str
    about: int | str | None

    @classmethod
    def of(cls, wrong: Exception) -> Refused:
        kind = type(wrong).__name__ if isinstance(wrong, TaskmillError) else InvalidState.__name__
        about = getattr(wrong, "existing_id", getattr(wrong, "id", None))
        return cls(kind, str(wrong) if isinstance(wrong, TaskmillError) else error_text(wrong), about)

    def unpacked(self) -> TaskmillError:
        kind = getattr(errors, self.error, InvalidState)
        return kind(self.message) if self.about is None else kind(self.message, self.about)


class RequestAnswer(msgspec.Struct, tag=True):
    """To the worker: a request is durable or was refused."""

    number: int
    stored: list[Stored]
    refusal: Refused | None


class Reported(msgspec.Struct, tag=True):
    """From the worker: progress."""

    progress: ProgressReport


class MovedBytes(msgspec.Struct, tag=True):
    """From the worker: the bytes that the handler reported as moved."""

    io: IoBudget


class SaveRequest(msgspec.Struct, tag=True):
    """From the worker: make this durable and answer."""

    number: int
    saved: str


class WireSubmission(msgspec.Struct):
    """A submission. The scheduler checks its payload against the handler unless it ``is_checked`` already."""

    type: str
    payload: str
    is_checked: bool
    options: dict[str, Any]
    check: bool
    """False if the task type need not be registered."""

    @classmethod
    def of(cls, submission: Submission) -> WireSubmission:
        payload = submission.encoded
        if payload is None:
            payload = encoded_arguments(submission.payload, submission.type).decode()
        return cls(submission.type, payload, submission.encoded is not None, dict(submission.options), submission.check)

    def unpacked(self) -> Submission:
        payload = msgspec.json.decode(self.payload)
        encoded = self.payload if self.is_checked else None
        return Submission.prepared(self.type, payload, decoded_options(self.options), encoded, check=self.check)


class SpawnRequest(msgspec.Struct, tag=True):
    """From the worker: store these children, or siblings, and answer."""

    number: int
    sibling: bool
    submissions: list[WireSubmission]


class Answer(msgspec.Struct, tag=True):
    """From the worker: the call is over. ``raised`` is the exception, for the log."""

    outcome: str
    fields: dict[str, Any]
    raised: str | None = None
    on_purpose: bool = False
    """True if the handler raised ``RetryLater`` or ``GiveUp``."""

    @classmethod
    def of(cls, outcome: RawOutcome, raised: str | None = None, *, on_purpose: bool = False) -> Answer:
        return cls(type(outcome).__name__, msgspec.structs.asdict(outcome), raised, on_purpose)

    def unpacked(self) -> RawOutcome:
        return msgspec.convert(self.fields, _ANSWERS[self.outcome])


ToWorker = Call | RequestAnswer
FromWorker = Reported | MovedBytes | SaveRequest | SpawnRequest | Answer

_encode = msgspec.json.Encoder().encode
decode_to_worker = msgspec.json.Decoder(ToWorker).decode
decode_from_worker = msgspec.json.Decoder(FromWorker).decode


def framed(message: ToWorker | FromWorker) -> bytes:
    body = _encode(message)
    return len(body).to_bytes(LENGTH_BYTES, "big") + body


class FrameReader:
    """Splits a stream of bytes into message bodies."""

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
