"""The building blocks of queries, bodies and answers, their bounds, and the shapes of refusals and sessions."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from taskmill import HistoryRecord, TaskRecord

MOST_LISTED = 200
"""The largest ``limit`` of a list."""
MOST_CHANGED = 1_000
"""The most tasks that one request changes."""
MOST_TEXT = 1_000
"""The longest text in a query, in characters."""

Text = Annotated[str, Meta(max_length=MOST_TEXT, pattern=r"^[^\x00]*$")]
Id = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Limit = Annotated[int, Meta(ge=1, le=MOST_LISTED, description="The most entries to return.")]
AnyRecord = TaskRecord | HistoryRecord
State = Literal[
    "active",
    "ended",
    "pending",
    "scheduled",
    "blocked",
    "running",
    "paused",
    "waiting",
    "completed",
    "failed",
    "dead_letter",
    "cancelled",
    "superseded",
    "expired",
    "dependency_failed",
]


class Query(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A query string. Unknown parameters are refused."""


class EventsQuery(Query):
    """What a stream sends besides events."""

    overview: bool = False
    """Send overviews too, as messages of type ``overview``."""


class Body(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The JSON body of a request. Unknown fields are refused. The log shows the fields that were given."""


class PageAnswer(msgspec.Struct, kw_only=True):
    """The JSON of a response."""


class Problem(PageAnswer):
    """Why a request was refused: a stable word, and a sentence that says what to do."""

    error: str
    message: str


class SessionBody(Body):
    """The token of the page, which becomes a cookie."""

    token: Annotated[str, Meta(max_length=MOST_TEXT)]


class SessionAnswer(PageAnswer):
    """What this browser or program may do, and what the page is about."""

    access: Literal["full", "read"]
    """``read`` if changes are refused with 403."""
    login: Literal["token", "authorize"]
    """How access is decided: by the token of the page, or by the program that it is mounted in."""
    store: str
    """The file or database, without a password."""
    version: str
    """The version of taskmill."""
