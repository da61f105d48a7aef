"""A submission: a task as the caller gave it, before defaults are applied, and the result of storing it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Generic, Unpack, cast

import msgspec

from taskmill.errors import SubmissionError
from taskmill.model.options import CALL_OPTIONS, CallOptions, checked_options
from taskmill.model.status import Kind
from taskmill.model.type_name import is_full_name

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    # Defaults of type variables are new in Python 3.13. Without one, ``Submission`` alone would be an error in strict
    # mode, and so would be a submission by name, whose result is unknown.
    R_co = TypeVar("R_co", covariant=True, default=Any)
else:
    from typing import TypeVar

    R_co = TypeVar("R_co", covariant=True)


class Submission(Generic[R_co]):
    """One task to be stored: ``Submission("domain::task", {"path": "a"}, priority=64)``.

    ``task.prepare(...)`` creates one from the handler's arguments; this constructor is for callers that do not import
    the handler. ``payload`` maps parameter names to values. With ``check=False`` the task type need not be published in
    the store yet.
    """

    __slots__ = ("check", "encoded", "options", "payload", "type")

    def __init__(
        self,
        type: str,
        payload: Mapping[str, Any] | None = None,
        *,
        check: bool = True,
        **options: Unpack[CallOptions],
    ) -> None:
        if not isinstance(type, str) or not type:
            raise SubmissionError(f"type must be a task type's name such as 'sync::transfer', got {type!r}")
        if payload is not None and not isinstance(payload, Mapping):
            raise SubmissionError(f"payload must map parameter names to values, not {payload.__class__.__name__}")
        if not isinstance(check, bool):
            raise SubmissionError(f"check must be True or False, got {check!r}")
        if not check and not is_full_name(type):
            raise SubmissionError(f"type must be a full name, 'domain::task', where check=False; got {type!r}")
        self.type = type
        self.check = check
        self.payload: Mapping[str, Any] = payload or {}
        self.options: Mapping[str, Any] = checked_options(options, CALL_OPTIONS, SubmissionError)
        self.encoded: str | None = None

    @classmethod
    def prepared(
        cls,
        type: str,
        payload: Mapping[str, Any],
        options: Mapping[str, Any],
        encoded: str | None,
        *,
        check: bool = True,
    ) -> Submission[Any]:
        """Create a submission whose options are already checked, and whose payload is too if ``encoded`` is given."""
        submission = cls.__new__(cls)
        submission.type = type
        submission.check = check
        submission.payload = payload
        submission.options = options
        submission.encoded = encoded
        return submission

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Submission):
            return NotImplemented
        mine = self.type, self.payload, self.options, self.check
        return mine == (other.type, other.payload, other.options, other.check)

    __hash__ = None  # type: ignore[assignment] # its payload may change

    def __repr__(self) -> str:
        return f"Submission({self.type!r}, {dict(self.payload)!r})"


class Stored(msgspec.Struct, frozen=True, gc=False):
    """The result of one submission."""

    id: int
    kind: Kind
    replaced_id: int | None = None


def checked_submissions(given: object) -> list[Submission]:
    """Return ``given`` as a list of submissions, or raise ``SubmissionError``."""
    if not isinstance(given, Iterable):
        raise SubmissionError(f"submissions must be an iterable of Submission objects, got {given!r}")
    submissions = list(cast("Iterable[object]", given))
    for submission in submissions:
        if not isinstance(submission, Submission):
            raise SubmissionError(
                f"submissions must be Submission objects, such as task.prepare(...) returns, got {submission!r}"
            )
    return cast("list[Submission]", submissions)
