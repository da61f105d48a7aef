"""The registry of a scheduler's task types. It turns submissions into rows and applies all defaults.

Precedence, for every option: call > task type > domain > scheduler > built-in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, cast

import msgspec

from taskmill.define.domain import Domain, by_type, checked_state
from taskmill.define.signature import arguments_digest, encoded_arguments, json_encode, sized_payload
from taskmill.define.task import TaskType, computed_options
from taskmill.errors import ConfigError, SubmissionError, UnknownTaskType
from taskmill.model.controls import Declared
from taskmill.model.durations import LAST_INSTANT_MS, milliseconds
from taskmill.model.io_budget import budget_to_store
from taskmill.model.options import checked_options, decoded_options, merged, text, valid_tags
from taskmill.model.settings import DEFAULT_RETRY, Aging, Group, Priority, RateLimit, Retry, priority_value
from taskmill.model.status import PENDING, OnDuplicate, Status, TtlFrom
from taskmill.model.submission import Submission
from taskmill.model.task import NO_OVERRIDES, Links, NewTask, Overrides
from taskmill.model.type_name import domain_of

BUILT_IN: Mapping[str, Any] = {
    "key": None,
    "priority": int(Priority.NORMAL),
    "group": "",
    "ttl": None,
    "ttl_from": TtlFrom.SUBMISSION,
    "on_duplicate": OnDuplicate.SKIP,
    "tags": {},
    "label": None,
    "retry": DEFAULT_RETRY,
    "timeout": None,
    "run_in": None,
    "fail_fast": True,
    "max_children": None,
    "on_parent_expiry": "complete",
    "rate": None,
    "io": None,
}

# Options that a process without the handler needs in order to submit by name with the right defaults.
PUBLISHED = ("key", "priority", "group", "ttl", "ttl_from", "on_duplicate", "tags", "label", "io", "on_parent_expiry")


NO_PREEMPTION = -1


class RegisteredType:
    """A task type with its defaults resolved and its state map built."""

    __slots__ = (
        "defaults",
        "domain",
        "fail_fast",
        "handler",
        "has_own_ttl",
        "in_process",
        "max_children",
        "rate",
        "retry",
        "state",
        "timeout_ms",
    )

    def __init__(
        self,
        handler: TaskType,
        domain: Domain,
        scheduler_options: Mapping[str, Any],
        state: Mapping[type, Any],
    ) -> None:
        self.handler = handler
        fixed = {name: value for name, value in handler.options.items() if name not in handler.computing}
        self.defaults = merged(BUILT_IN, scheduler_options, domain.options, fixed)
        self.domain = domain
        self.state = state
        """The objects for ``ctx.state``, by type: those of the domain first, then those of the scheduler."""
        self.retry: Retry = self.defaults["retry"]
        self.timeout_ms: int | None = self.defaults["timeout"]
        self.in_process = self.defaults["run_in"] == "process"
        self.fail_fast: bool = self.defaults["fail_fast"]
        self.max_children: int | None = self.defaults["max_children"]
        self.rate: RateLimit | None = self.defaults["rate"]
        self.has_own_ttl = "ttl" in domain.options or "ttl" in fixed

    def published(self) -> str:
        options = {name: self.defaults[name] for name in PUBLISHED}
        about = {
            "computes": [*self.handler.computing],
            "has_own_ttl": self.has_own_ttl,
            "has_on_cancel": self.handler.on_cancel is not None,
        }
        return json_encode({**options, **self.handler.signature.published(), **about}).decode()


class Registry:
    """Finds task types by name and turns submissions into rows."""

    def __init__(
        self,
        domains: Iterable[Domain],
        *,
        retry: Retry | None,
        ttl: object = None,
        state: Iterable[Any] = (),
        check_process: Callable[[TaskType], None] | None = None,
    ) -> None:
        self._check_process = check_process
        """Raises ``ConfigError`` for a type with ``run_in="process"`` that a worker process could not find."""
        self.is_changed = False
        """True if something was defined since the types were last published."""
        self._scheduler_options: dict[str, Any] = {}
        if retry is not None:
            self._scheduler_options |= checked_options({"retry": retry}, ["retry"])
        if ttl is not None:
            self._scheduler_options["ttl"] = milliseconds(ttl, "default_ttl")
        if isinstance(domains, Domain) or not isinstance(domains, Iterable):
            raise ConfigError(f"domains must be a list of Domain objects, got {domains!r}")
        self.domains = tuple(domains)
        self._types: dict[str, RegisteredType] = {}
        self._foreign: dict[str, dict[str, Any]] = {}
        self._shared = by_type(checked_state(state))
        self._of_domains: dict[str, dict[type, Any]] = {}
        for domain in self.domains:
            if not isinstance(domain, Domain):
                raise ConfigError(f"domains must be Domain objects, not {type(domain).__name__}")
            if sum(other.name == domain.name for other in self.domains) > 1:
                raise ConfigError(f"two domains are named {domain.name!r}; give each its own name")
            self._of_domains[domain.name] = by_type(domain.state)
            for handler in domain.types.values():
                self._check_names(handler)
                self._register(self._types, domain, handler)
            domain.followers.add(self)

    def _check_names(self, type: TaskType) -> None:
        for name in (type.name, *type.aliases):
            if name in self._types and self._types[name].handler.name != type.name:
                raise ConfigError(
                    f"both {self._types[name].handler.name} and {type.name} run tasks named {name}; "
                    "remove it from the aliases of one"
                )

    def check_definition(self, type: TaskType) -> None:
        """Raise ``ConfigError`` if this type cannot be added to an existing scheduler."""
        self._check_names(type)
        if type.options.get("run_in") == "process" and self._check_process is not None:
            self._check_process(type)

    def define(self, domain: Domain, type: TaskType) -> None:
        """Add a task type. If its function was defined before, the new version replaces the earlier one."""
        # Build a new mapping: this may be called in another thread than that of the event loop.
        types = {name: each for name, each in self._types.items() if each.handler.name != type.name}
        self._register(types, domain, type)
        self._types = types
        self.is_changed = True

    def hook_defined(self) -> None:
        """Note that a type has a new hook, which other processes must know."""
        self.is_changed = True

    def _register(self, types: dict[str, RegisteredType], domain: Domain, type: TaskType) -> None:
        registered = RegisteredType(type, domain, self._scheduler_options, self._state_for(domain))
        types |= dict.fromkeys((type.name, *type.aliases), registered)

    def provide(self, objects: Iterable[Any], domain: str | Domain | None) -> None:
        """Add objects for ``ctx.state`` to one domain, or to the scheduler."""
        if domain is None:
            self._shared = by_type(objects, self._shared)
        else:
            name = domain.name if isinstance(domain, Domain) else domain
            if not isinstance(name, str) or name not in self._of_domains:
                known = ", ".join(sorted(self._of_domains)) or "none"
                raise ConfigError(f"domain: this scheduler has no domain {name!r}; it has: {known}")
            self._of_domains[name] = by_type(objects, self._of_domains[name])
        for registered in self:
            registered.state = self._state_for(registered.domain)

    def _state_for(self, domain: Domain) -> dict[type, Any]:
        own = self._of_domains[domain.name]
        return {**own, **{kind: value for kind, value in self._shared.items() if kind not in own}}

    def __iter__(self) -> Iterator[RegisteredType]:
        return iter({registered.handler.name: registered for registered in self._types.values()}.values())

    def find(self, name: str) -> RegisteredType | None:
        return self._types.get(name)

    def published(self) -> dict[str, str]:
        """Return every type with its defaults as JSON, for processes that submit by name."""
        return {name: registered.published() for name, registered in self._types.items()}

    def learn_foreign(self, published: Mapping[str, str]) -> None:
        """Add the types that other processes of the store have registered."""
        for name, defaults in published.items():
            if name not in self._types:
                known = decoded_options(msgspec.json.decode(defaults))
                self._foreign[name] = merged(BUILT_IN, self._scheduler_options, known)

    def knows(self, name: str) -> bool:
        return name in self._types or name in self._foreign

    def resolve(self, submission: Submission, now: int, *, spawning: bool = False, has_looked: bool = False) -> NewTask:
        """Return the row to store for this submission.

        An unknown type is accepted if the submission has ``check=False`` and the caller ``has_looked`` for types
        published in the store.
        """
        registered = self._types.get(submission.type)
        options = submission.options
        if registered is not None:
            handler = registered.handler
            payload = submission.encoded
            if payload is None:
                payload = handler.signature.encode_payload(submission.payload)
            settings = registered.defaults
            if handler.computing:
                computed = computed_options(handler, payload, options)
                settings = merged(settings, computed) if "tags" in computed else {**settings, **computed}
            if options:
                settings = merged(settings, options)
            key = settings["key"]
            if key is True:
                key = handler.signature.digest(payload)
        else:
            defaults = self._foreign.get(submission.type) or self._unpublished(submission, has_looked=has_looked)
            payload = submission.encoded or _encode_unchecked(submission)
            settings = merged(defaults, options)
            key = settings["key"]
            if key is True:
                key = arguments_digest({**settings["payload"], **submission.payload})
        links = None
        if spawning or settings["on_parent_expiry"] == "cancel" or not options.keys().isdisjoint(TIES):
            has_own_ttl = settings["has_own_ttl"] if registered is None else registered.has_own_ttl
            links = _links(settings, options, has_own_ttl=has_own_ttl, spawning=spawning)
        return _new_task(submission.type, key, payload, settings, options, links, now)

    def _unpublished(self, submission: Submission, *, has_looked: bool) -> dict[str, Any]:
        """Return the defaults of a type that no scheduler has published, or refuse the submission."""
        if submission.check or not has_looked:
            known = ", ".join(sorted(self.known_names)) or "none"
            raise UnknownTaskType(
                f"no task type is named {submission.type!r}; registered are: {known}. If the name is right, "
                "start a scheduler with its domain once, or submit with Submission(..., check=False), which does not "
                "apply the defaults of the task type"
            )
        return merged(BUILT_IN, self._scheduler_options, {"payload": {}, "has_own_ttl": False})

    @property
    def known_names(self) -> set[str]:
        return {*self._types, *self._foreign}


TIES = frozenset({"depends_on", "ref", "every", "max_runs"})
"""Options of a call that connect its task to other tasks."""


def _links(settings: Mapping[str, Any], call: Mapping[str, Any], *, has_own_ttl: bool, spawning: bool) -> Links:
    if "every" in call and spawning:
        raise SubmissionError(
            "every: a child cannot recur, because its parent would wait forever; neither can a sibling that a handler "
            "spawns. Submit it with scheduler.submit() instead"
        )
    if "every" in call and "depends_on" in call:
        raise SubmissionError("every and depends_on exclude each other; give one of them")
    if call.get("max_runs") is not None and "every" not in call:
        raise SubmissionError("max_runs is for recurring tasks; set every as well")
    return Links(
        on_dependency_failure=call.get("on_dependency_failure"),
        on_parent_expiry=None if settings["on_parent_expiry"] == "complete" else "cancel",
        depends_on=call.get("depends_on", ()),
        ref=call.get("ref"),
        own_ttl=has_own_ttl or "ttl" in call,
        every_ms=call.get("every"),
        max_runs=call.get("max_runs"),
    )


def _new_task(
    type: str,
    key: str | None,
    payload: str,
    settings: Mapping[str, Any],
    call: Mapping[str, Any],
    links: Links | None,
    now: int,
) -> NewTask:
    due_at = call.get("run_at")
    relative = False
    if (delay := call.get("run_after")) is not None:
        due_at, relative = now + delay, True
    recurs = links is not None and links.every_ms is not None
    status = PENDING if due_at is None or due_at <= now else Status.SCHEDULED
    if status is PENDING and not recurs:
        # A recurring task keeps the due time of a late first occurrence: its beats are counted from it.
        due_at = None
    ttl = settings["ttl"]
    from_first_attempt = ttl is not None and settings["ttl_from"] is TtlFrom.FIRST_ATTEMPT
    # The TTL of recurring work counts from when each occurrence is due.
    counts_from = max(due_at, now) if due_at is not None and recurs else now
    # A TTL of zero still allows a start in the current millisecond.
    deadline = None if ttl is None else counts_from + max(ttl, 1)
    if due_at is not None or deadline is not None:
        for name, at in (("run_after", due_at), ("ttl", deadline)):
            if at is not None and at > LAST_INSTANT_MS:
                raise SubmissionError(f"{name} is too long: it would end after the year 9999")
    return NewTask(
        type=type,
        key=key,
        label=settings["label"],
        group=settings["group"],
        priority=settings["priority"],
        status=status,
        payload=payload,
        tags=valid_tags(settings["tags"]) if settings["tags"] else None,
        overrides=overrides_of(call) if call else None,
        created_at=now,
        # Waiting time counts from when the task is due.
        queued_at=now if due_at is None else max(due_at, now),
        due_at=due_at,
        due_is_relative=relative,
        expires_at=None if from_first_attempt else deadline,
        ttl_ms=ttl if from_first_attempt else None,
        gate_id=None,
        stop=None,
        on_duplicate=settings["on_duplicate"],
        links=links,
        io=None if (io := settings["io"]) is None else budget_to_store(io),
    )


def overrides_of(call: Mapping[str, Any]) -> str | None:
    """Return the retry, timeout and fail_fast options of a call as stored JSON, or ``None`` if it has none."""
    if "retry" not in call and "timeout" not in call and "fail_fast" not in call:
        return None
    return json_encode(
        Overrides(
            retry=call.get("retry"),
            timeout_ms=call.get("timeout", NO_OVERRIDES.timeout_ms),
            fail_fast=call.get("fail_fast"),
        )
    ).decode()


def _encode_unchecked(submission: Submission) -> str:
    return sized_payload(encoded_arguments(submission.payload, submission.type), submission.type)


def declared(
    registry: Registry,
    max_concurrency: int,
    groups: object,
    default_group: object,
    aging: object,
    preempt_at: object,
) -> Declared:
    """Check the groups, aging and preemption that a program declares, and add the limits of its domains and types."""
    if not isinstance(groups, Mapping):
        raise ConfigError(f"groups must map names to Group settings, got {groups!r}")
    given = cast("Mapping[object, object]", groups)
    for name, group in given.items():
        text(name, "a group's name", ConfigError)
        if not isinstance(group, Group):
            raise ConfigError(f"groups[{name!r}] must be a Group, not {type(group).__name__}")
    if not isinstance(default_group, Group):
        raise ConfigError(f"default_group must be a Group, not {type(default_group).__name__}")
    if aging is not None and not isinstance(aging, Aging):
        raise ConfigError(f"aging must be an Aging or None, not {type(aging).__name__}")
    return with_limits(
        Declared(
            max_concurrency=max_concurrency,
            default_group=default_group,
            groups=cast("Mapping[str, Group]", dict(given)),
            aging=aging,
            preempt_at=NO_PREEMPTION if preempt_at is None else priority_value(preempt_at, "preempt_at"),
        ),
        registry,
    )


def with_limits(declared: Declared, registry: Registry) -> Declared:
    """Return these settings with the present limits of domains and types."""
    rates = {
        name: each.rate
        for each in registry
        if each.rate is not None
        for name in (each.handler.name, *each.handler.aliases)
    }
    return msgspec.structs.replace(declared, domain_caps=_domain_caps(registry), rates=rates)


def _domain_caps(registry: Registry) -> dict[str, int]:
    """Return the caps of domains. A domain that only aliases mention has the cap of the domain that runs its tasks."""
    former = {domain_of(alias): each.domain.max_concurrency for each in registry for alias in each.handler.aliases}
    caps = {**former, **{domain.name: domain.max_concurrency for domain in registry.domains}}
    return {name: cap for name, cap in caps.items() if cap is not None}
