"""The options of a task: one table with the check of each option, wherever it is given.

An option may be given per call, per task type, per domain and on the scheduler. The most specific value wins; only
:func:`merged` implements this. Tags are merged name by name.
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Literal, Protocol, TypedDict, cast

import msgspec

from taskmill.errors import ConfigError, InvalidDependency, InvalidTag, SubmissionError, TaskNotFound
from taskmill.model.durations import Duration, instant, milliseconds, optional_milliseconds
from taskmill.model.io_budget import LEARN, IoBudget
from taskmill.model.settings import RateLimit, Retry, priority_value, slot_count
from taskmill.model.status import (
    OnDependencyFailure,
    OnDependencyFailureWord,
    OnDuplicate,
    OnDuplicateWord,
    OnParentExpiry,
    RunIn,
    TtlFrom,
    TtlFromWord,
    choice,
)


class HasId(Protocol):
    """The part of a handle that ``depends_on`` uses."""

    id: int


Dependencies = int | str | HasId | Iterable[int | str | HasId]
"""Ids, handles, or the ``ref`` of submissions in the same call."""

TextOrFunction = str | Callable[..., str | None] | None


class DomainOptions(TypedDict, total=False):
    """The defaults of the task types of a domain."""

    priority: int
    ttl: Duration | None
    ttl_from: TtlFrom | TtlFromWord
    retry: Retry
    group: str | None
    tags: Mapping[str, str]
    timeout: Duration | None
    max_concurrency: int | None


class TypeOptions(TypedDict, total=False):
    """The options of a task type; they override those of its domain."""

    priority: int | Callable[..., int]
    ttl: Duration | None
    ttl_from: TtlFrom | TtlFromWord
    retry: Retry
    group: TextOrFunction
    key: bool | TextOrFunction | tuple[str, ...]
    label: TextOrFunction
    tags: Mapping[str, str] | Callable[..., Mapping[str, str]]
    io: IoBudget | Literal["learn"] | Callable[..., IoBudget | None] | None
    on_duplicate: OnDuplicate | OnDuplicateWord
    timeout: Duration | None
    run_in: RunIn | None
    fail_fast: bool
    max_children: int | None
    on_parent_expiry: OnParentExpiry
    rate: RateLimit | None


class CallOptions(TypedDict, total=False):
    """The options of one call; they override those of the task type, the domain and the scheduler."""

    key: str | bool | None
    priority: int
    group: str | None
    ttl: Duration | None
    ttl_from: TtlFrom | TtlFromWord
    run_after: Duration
    run_at: datetime
    on_duplicate: OnDuplicate | OnDuplicateWord
    tags: Mapping[str, str]
    label: str | None
    io: IoBudget | Literal["learn"] | None
    retry: Retry
    timeout: Duration | None
    every: Duration
    max_runs: int | None
    depends_on: Dependencies
    on_dependency_failure: OnDependencyFailure | OnDependencyFailureWord
    fail_fast: bool
    ref: str


CALL_OPTIONS = frozenset(CallOptions.__annotations__)

MOST_TAGS = 32
LONGEST_TAG_NAME = 64
LONGEST_TAG_VALUE = 256


def valid_tags(tags: object) -> dict[str, str]:
    """Return a checked copy of ``tags``, or raise :class:`InvalidTag` that names the wrong one."""
    if not isinstance(tags, Mapping):
        raise InvalidTag(f"tags must map names to values, not {type(tags).__name__}")
    if len(tags) > MOST_TAGS:  # pyright: ignore[reportUnknownArgumentType]
        raise InvalidTag(f"tags: at most {MOST_TAGS} are allowed, got {len(tags)}")  # pyright: ignore[reportUnknownArgumentType]
    checked: dict[str, str] = {}
    for key, value in tags.items():  # pyright: ignore[reportUnknownVariableType]
        if not isinstance(key, str) or not isinstance(value, str):
            raise InvalidTag(f"tags must be strings, got {key!r}: {value!r}")
        if not key:
            raise InvalidTag("tags: a name must not be empty")
        if _size(key) > LONGEST_TAG_NAME:
            raise InvalidTag(f"tags: the name {key[:20]!r}… is longer than {LONGEST_TAG_NAME} bytes")
        if _size(value) > LONGEST_TAG_VALUE:
            raise InvalidTag(f"tags: the value of {key!r} is longer than {LONGEST_TAG_VALUE} bytes")
        checked[key] = value
    return checked


_decode_tags = msgspec.json.Decoder(dict[str, str]).decode


def decode_tags(tags: str | None) -> dict[str, str]:
    """Decode stored tags."""
    return _decode_tags(tags) if tags else {}


def _size(text: str) -> int:
    if "\0" in text:
        raise InvalidTag(f"tags must not contain the NUL character: {text!r}")
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        raise InvalidTag(f"tags: {text!r} is not valid Unicode text") from None


LONGEST_TEXT = 4096
Check = Callable[[Any, str, type[Exception]], Any]


def text(value: object, name: str, error: type[Exception]) -> str:
    if not isinstance(value, str):
        raise error(f"{name} must be a string, not {type(value).__name__}")
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise error(f"{name} is not valid Unicode text: {value!r}") from None
    if "\0" in value:
        raise error(f"{name} must not contain the NUL character: {value!r}")
    if size > LONGEST_TEXT:
        raise error(f"{name} is longer than {LONGEST_TEXT} bytes")
    return value


def _optional_text(value: object, name: str, error: type[Exception]) -> str | None:
    return None if value is None else text(value, name, error)


def _group(value: object, name: str, error: type[Exception]) -> str:
    return "" if value is None else text(value, name, error)


def _key(value: object, name: str, error: type[Exception]) -> str | bool | None:
    if value is None or value is True:
        return value
    if isinstance(value, str) and not value:
        raise error(f"{name} must not be empty; leave it out for a task without a key")
    return text(value, name, error)


def _retry(value: object, name: str, error: type[Exception]) -> Retry:
    if not isinstance(value, Retry):
        raise error(f"{name} must be a Retry such as Retry.constant(3, delay=1), got {value!r}")
    return value


def _tags(value: object, _name: str, error: type[Exception]) -> dict[str, str]:
    try:
        return valid_tags(value)
    except InvalidTag as wrong:
        raise wrong if error is SubmissionError else error(str(wrong)) from None


def _timeout(value: object, name: str, error: type[Exception]) -> int | None:
    if (ms := optional_milliseconds(value, name, error)) == 0:
        raise error(f"{name} must be longer than zero; None means no timeout")
    return ms


def _run_in(value: object, name: str, error: type[Exception]) -> str | None:
    if value not in (None, "process"):
        raise error(f"{name} must be 'process' or None, got {value!r}")
    return None if value is None else "process"


def _on_parent_expiry(value: object, name: str, error: type[Exception]) -> OnParentExpiry:
    if value not in ("complete", "cancel"):
        raise error(f"{name} must be one of 'complete', 'cancel', got {value!r}")
    return "cancel" if value == "cancel" else "complete"


def _flag(value: object, name: str, error: type[Exception]) -> bool:
    if not isinstance(value, bool):
        raise error(f"{name} must be True or False, got {value!r}")
    return value


def _count(value: object, name: str, error: type[Exception]) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value < 2**63:
        raise error(f"{name} must be a whole number of at least 1, or None, got {str(value)[:40]}")
    return value


def checked_id(id: object) -> int:
    if isinstance(id, bool) or not isinstance(id, int):
        raise ConfigError(f"id must be an int, not {type(id).__name__}")
    if not 0 <= id < 2**63:
        raise TaskNotFound(f"no task has the id {id}")
    return id


def _slots(value: object, name: str, error: type[Exception]) -> int | None:
    return None if value is None else slot_count(value, name, error)


def _rate(value: object, name: str, error: type[Exception]) -> RateLimit | None:
    if value is not None and not isinstance(value, RateLimit):
        raise error(f"{name} must be a RateLimit such as RateLimit.per_second(5), or None, got {value!r}")
    return value


def _io(value: object, name: str, error: type[Exception]) -> IoBudget | str | None:
    if value is None or isinstance(value, IoBudget):
        return value
    if value == LEARN:
        return LEARN
    raise error(f"{name} must be an IoBudget such as IoBudget(disk_write=10_000_000), 'learn' or None, got {value!r}")


def _every(value: object, name: str, error: type[Exception]) -> int:
    if (ms := milliseconds(value, name, error)) == 0:
        raise error(f"{name} must be longer than zero")
    return ms


def _ref(value: object, name: str, error: type[Exception]) -> str:
    if value == "":
        raise error(f"{name} must not be empty")
    return text(value, name, error)


def _depends_on(value: object, name: str, error: type[Exception]) -> tuple[int | str, ...]:
    """Normalize ``depends_on``: one or many ids, handles or refs become a tuple of ids and refs."""
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        many = list(cast("Iterable[object]", value))
    else:
        many = [value]
    return tuple(dict.fromkeys(_dependency(one, name, error) for one in many))


def _dependency(value: object, name: str, error: type[Exception]) -> int | str:
    if isinstance(value, str):
        return _ref(value, name, error)
    id = value if isinstance(value, int) else getattr(value, "id", None)
    if isinstance(id, bool) or not isinstance(id, int):
        raise error(f"{name} takes ids, handles, or the ref of a submission in the same call, got {value!r}")
    if not 0 <= id < 2**63:
        raise InvalidDependency(f"{name}: no task has the id {id}", id)
    return id


CHECKS: Mapping[str, Check] = {
    "key": _key,
    "priority": priority_value,
    "group": _group,
    "ttl": optional_milliseconds,
    "ttl_from": lambda value, name, error: choice(TtlFrom, value, name, error),
    "run_after": milliseconds,
    "run_at": instant,
    "on_duplicate": lambda value, name, error: choice(OnDuplicate, value, name, error),
    "tags": _tags,
    "label": _optional_text,
    "retry": _retry,
    "timeout": _timeout,
    "run_in": _run_in,
    "every": _every,
    "max_runs": _count,
    "depends_on": _depends_on,
    "on_dependency_failure": lambda value, name, error: choice(OnDependencyFailure, value, name, error),
    "ref": _ref,
    "fail_fast": _flag,
    "max_children": _count,
    "rate": _rate,
    "io": _io,
    "max_concurrency": _slots,
    "on_parent_expiry": _on_parent_expiry,
}

# Options whose checked values do not survive a round trip through JSON.
_DECODED: Mapping[str, Callable[[Any], Any]] = {
    "ttl_from": TtlFrom,
    "on_duplicate": OnDuplicate,
    "on_dependency_failure": OnDependencyFailure,
    "retry": lambda value: msgspec.convert(value, Retry),
    "depends_on": tuple,
    "io": lambda value: msgspec.convert(value, IoBudget) if isinstance(value, dict) else value,
}

# Options that a task type may compute from the handler's arguments. A key may also be a tuple of paths into them.
COMPUTABLE = frozenset({"key", "group", "label", "tags", "priority", "io"})


def checked_options(
    options: Mapping[str, Any],
    allowed: Iterable[str],
    error: type[Exception] = ConfigError,
    *,
    computable: bool = False,
) -> dict[str, Any]:
    """Return a checked, normalized copy of ``options``: durations and instants in milliseconds, enums as members."""
    checked: dict[str, Any] = {}
    for name, value in options.items():
        if name not in allowed:
            raise error(f"unknown option {name!r}; known are {', '.join(sorted(allowed))}")
        if computable and name in COMPUTABLE and (callable(value) or (name == "key" and isinstance(value, tuple))):
            checked[name] = value
        else:
            checked[name] = CHECKS[name](value, name, error)
    if "run_after" in checked and "run_at" in checked:
        raise error("run_after and run_at exclude each other; give one of them")
    return checked


def decoded_options(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Restore checked options that were stored as JSON."""
    return {name: _DECODED[name](value) if name in _DECODED else value for name, value in stored.items()}


def merged(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """Merge layers of options, the most specific last. Tags are merged; every other option is replaced."""
    result: dict[str, Any] = {}
    for layer in layers:
        tags = result.get("tags")
        if "run_at" in layer or "run_after" in layer:
            # Both options set the due time, so the more specific layer replaces either.
            result.pop("run_at", None)
            result.pop("run_after", None)
        result.update(layer)
        if tags and "tags" in layer and not callable(tags) and not callable(layer["tags"]):
            result["tags"] = {**tags, **layer["tags"]}
    return result
