"""Use a handler's signature as the schema of its payload.

The parameters after an optional first ``Context`` are the payload: a JSON object that maps their names to values.
Encoding binds the caller's arguments to the signature and checks them against the annotations, so that arguments that
could not be decoded later are refused at the call. Unannotated parameters, ``*args`` and ``**kwargs`` hold plain JSON
values, and refuse others.

A stored payload may be older than the handler. Parameters that the handler no longer has are ignored; a missing one
makes the payload unreadable.
"""

from __future__ import annotations

import hashlib
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from operator import attrgetter
from pathlib import PurePath
from types import GenericAlias, MappingProxyType
from typing import Any, cast, get_args, get_type_hints

import msgspec

from taskmill.errors import ConfigError, PayloadTooLarge, SubmissionError

LARGEST_PAYLOAD = 1024 * 1024

_KEPT = (str, int, float, bool, bytes)
"""Annotations whose values JSON keeps."""
_STORABLE = (*_KEPT, Any, list, dict, object)
"""Annotations that need no search for parts that JSON cannot hold."""

_Parameter = inspect.Parameter


def to_plain(value: Any) -> object:
    """Convert what msgspec cannot encode itself: paths, ``ctx.saved`` and ``ctx.replaced``, and pydantic models."""
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, MappingProxyType):
        return dict(cast("Mapping[Any, Any]", value))
    # Imported here, because most programs have no models.
    from taskmill.define.pydantic_models import dumped, is_model_type

    if is_model_type(value.__class__):
        return dumped(value)
    raise TypeError(f"{type(value).__name__} values cannot be stored as JSON")


def from_plain(kind: type, value: object) -> object:
    if isinstance(kind, type) and issubclass(kind, PurePath) and isinstance(value, str):
        return kind(value)
    from taskmill.define.pydantic_models import is_model_type, validated

    if is_model_type(cast("object", kind)):
        return validated(kind, value)
    if kind is object:
        return value
    raise TypeError(f"{kind!r} cannot be read from JSON")


_MISTAKEN_FOR: Mapping[type, type | tuple[type, ...]] = {str: (bytes, bytearray, memoryview), bytes: str}
"""Values of these types would be stored as base64, or read as base64."""

NOT_JSON = (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError)
"""The exceptions that encoding raises for values that JSON cannot hold."""

json_encode = msgspec.json.Encoder(enc_hook=to_plain).encode


class PayloadMismatch(ValueError):
    """A stored payload does not fit the current handler."""


class HandlerSignature:
    """Encodes calls of one handler to payload text and back to arguments."""

    def __init__(
        self,
        function: Callable[..., Any],
        context_type: type,
        type_name: str,
        local_names: Mapping[str, Any] | None = None,
    ) -> None:
        self.type_name = type_name
        hints = _resolved_hints(function, type_name, local_names)
        parameters = list(inspect.signature(function).parameters.values())
        self.wants_context = bool(parameters) and _is_context(hints.get(parameters[0].name), context_type)
        if self.wants_context:
            del parameters[0]
        for parameter in parameters:
            if _is_context(hints.get(parameter.name), context_type):
                raise ConfigError(f"{type_name}: the Context must be the first parameter, not {parameter.name!r}")
        self.returns: Any = hints.get("return", Any)
        self._signature = inspect.Signature(parameters)
        self._names = tuple(parameter.name for parameter in parameters)
        self._positional = tuple(p.name for p in parameters if p.kind <= _Parameter.POSITIONAL_OR_KEYWORD)
        self._keyword_only = tuple(p.name for p in parameters if p.kind is _Parameter.KEYWORD_ONLY)
        self._starred = next((p.name for p in parameters if p.kind is _Parameter.VAR_POSITIONAL), None)
        self._double_starred = next((p.name for p in parameters if p.kind is _Parameter.VAR_KEYWORD), None)
        self._annotations = {name: hints.get(name, Any) for name in self._names}
        self._loose = self._loose_parameters()
        """The parameters whose values JSON might change, each with the check of its values."""
        self._texts = [(name, kind) for name, kind in self._annotations.items() if kind in (str, bytes)]
        """The parameters of type str and bytes. JSON has one type for both, so the caller's type is checked."""
        fields = [_field(parameter, self._annotations[parameter.name]) for parameter in parameters]
        self._required = frozenset(field[0] for field in fields if len(field) == 2)
        self._decoder = self._payload_decoder(fields)
        self._lenient_decoder = cache(partial(self._payload_decoder, fields, lenient=True))
        self.ignored: tuple[str, ...] = ()
        """Parameters found in a stored payload that the handler no longer has."""
        self.ignored_is_reported = False
        self._plain_positional = len(self._positional) == len(self._names)
        self._positional_values = _values_of(self._positional)

    def _payload_decoder(self, fields: Sequence[tuple[Any, ...]], *, lenient: bool = False) -> Any:
        try:
            payload = msgspec.defstruct("Payload", fields, kw_only=True, forbid_unknown_fields=not lenient)
            for name, annotation, *_ in fields:
                if (reason := _why_unstorable(annotation)) is not None:
                    raise ConfigError(f"{self.type_name}: parameter {name!r} {reason}")
            return msgspec.json.Decoder(payload, dec_hook=from_plain)
        except TypeError as wrong:
            raise ConfigError(f"{self.type_name}: a parameter cannot be stored as JSON: {wrong}") from wrong

    def encode(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
        """Return the bound arguments and the payload text of a call, checked against the annotations."""
        if not kwargs and self._plain_positional and len(args) == len(self._names):
            arguments = dict(zip(self._names, args, strict=True))
        else:
            try:
                arguments = dict(self._signature.bind(*args, **kwargs).arguments)
            except TypeError as wrong:
                raise SubmissionError(f"{self.type_name}: {wrong}") from None
        for name, kind in self._texts:
            if isinstance(given := arguments.get(name), _MISTAKEN_FOR[kind]):
                raise SubmissionError(
                    f"{self.type_name}: argument {name!r}: expected {kind.__name__}, got {type(given).__name__}"
                )
        return arguments, self.encode_payload(arguments)

    def encode_payload(self, arguments: Mapping[str, Any]) -> str:
        encoded = encoded_arguments(arguments, self.type_name)
        try:
            self._decoder.decode(encoded)
        except msgspec.ValidationError as wrong:
            # Imported here, as for stored payloads: most calls fit.
            from taskmill.define.refused_arguments import why_refused

            raise SubmissionError(f"{self.type_name}: {why_refused(wrong, arguments, self._names)}") from None
        for name, check in self._loose:
            check(arguments.get(name))
        return sized_payload(encoded, self.type_name)

    def _loose_parameters(self) -> list[tuple[str, Callable[[Any], None]]]:
        annotations = [(name, annotation) for name, annotation in self._annotations.items() if annotation not in _KEPT]
        if not annotations:
            return []
        # Imported here, because many handlers need no such check.
        from taskmill.define.kept_values import check_kept, loose_type

        return [
            (name, partial(check_kept, self.type_name, name, self._written(name), kind, _read_back))
            for name, annotation in annotations
            if (kind := loose_type(annotation)) is not None
        ]

    def _written(self, name: str) -> str:
        return f"*{name}" if name == self._starred else f"**{name}" if name == self._double_starred else name

    def decode(self, payload: str) -> tuple[list[Any], dict[str, Any]]:
        """Return the positional and keyword arguments for the handler."""
        try:
            values = self._decoder.decode(payload)
        except msgspec.ValidationError as wrong:
            values = self._decode_outdated(payload, wrong)
        args = self._positional_values(values)
        if self._plain_positional:
            return args, {}
        if self._starred is not None:
            args.extend(getattr(values, self._starred))
        kwargs = {name: getattr(values, name) for name in self._keyword_only}
        if self._double_starred is not None:
            kwargs.update(getattr(values, self._double_starred))
        return args, kwargs

    def _decode_outdated(self, payload: str, wrong: msgspec.ValidationError) -> Any:
        """Decode the payload of an older handler without the parameters that are gone; raise if it does not fit."""
        stored = msgspec.json.decode(payload)
        given = set(cast("dict[str, Any]", stored)) if isinstance(stored, dict) else set[str]()
        if missing := sorted(self._required - given):
            raise PayloadMismatch(
                f"the stored payload has no {' and no '.join(map(repr, missing))}, which the handler requires: give "
                "the parameter a default value, then return the task to the queue with retry_dead"
            ) from None
        gone = tuple(sorted(given.difference(self._names)))
        try:
            if not gone:
                raise wrong
            values = self._lenient_decoder().decode(payload)
        except msgspec.ValidationError as unfit:
            from taskmill.define.refused_arguments import named

            raise PayloadMismatch(
                f"the stored payload does not fit the handler: {named(unfit)}; let the handler accept the stored "
                "form, then return the task to the queue with retry_dead"
            ) from None
        self.ignored = gone
        return values

    def key_of(self, paths: object) -> Callable[[str], Any]:
        """Return a function that makes the key of a payload from paths into the parameters."""
        # Imported here, because few task types have such a key.
        from taskmill.define.key_paths import checked_paths, key_from

        kinds = {name: _field(each, self._annotations[name])[1] for name, each in self._signature.parameters.items()}
        make = key_from(checked_paths(paths, kinds, self.type_name), json_encode)
        return lambda payload: make(self._decoder.decode(payload))

    def computing(self, function: Callable[..., Any], option: str) -> Callable[[str], Any]:
        """Adapt a function of the handler's arguments, such as ``key=lambda path: …``, to take a payload.

        If the parameters of the function are named like parameters of the handler, it gets those; further ones keep
        their defaults, and ``**rest`` gets all other arguments. Otherwise the function gets all arguments, in order.
        """
        if inspect.iscoroutinefunction(function):
            raise ConfigError(f"{self.type_name}: {option} must be a plain function, not async def")

        def compute_in_order(payload: str) -> Any:
            args, kwargs = self.decode(payload)
            return function(*args, **kwargs)

        def compute_with_rest(payload: str) -> Any:
            args, kwargs = self.decode(payload)
            return function(**dict(zip(self._positional, args, strict=True)), **kwargs)

        def compute_by_name(payload: str) -> Any:
            values = self._decoder.decode(payload)
            return function(**{name: getattr(values, name) for name in names})

        try:
            wanted = inspect.signature(function).parameters.values()
        except (TypeError, ValueError):
            return compute_in_order  # Some functions written in C, such as str, have no signature.
        kinds = {p.kind for p in wanted}
        known = {*self._positional, *self._keyword_only}
        names = tuple(p.name for p in wanted if p.name in known)
        others = [p for p in wanted if p.name not in known and p.kind is not _Parameter.VAR_KEYWORD]
        has_no_names = self._starred is not None or kinds & {_Parameter.POSITIONAL_ONLY, _Parameter.VAR_POSITIONAL}
        if has_no_names or any(p.default is _Parameter.empty for p in others) or (others and not names):
            return compute_in_order
        return compute_with_rest if _Parameter.VAR_KEYWORD in kinds else compute_by_name

    def published(self) -> dict[str, Any]:
        """Return what callers that do not import the handler need to know: default values and parameters."""
        # Imported here, because only an open scheduler publishes its task types.
        from taskmill.define.parameters import described

        named = (*self._positional, *self._keyword_only)
        return {
            "payload": self.defaults(),
            "parameters": [described(name, self._annotations[name], name in self._required) for name in named],
            "takes_more": self._starred is not None or self._double_starred is not None,
        }

    def defaults(self) -> dict[str, Any]:
        """Return the default values of parameters as JSON values."""
        given = {p.name: p.default for p in self._signature.parameters.values() if p.default is not _Parameter.empty}
        if not given:
            return {}
        from taskmill.define.key_text import canonical_values

        try:
            plain: dict[str, Any] = msgspec.json.decode(canonical_values(given, json_encode))
        except NOT_JSON:
            return {}
        return plain

    def digest(self, payload: str) -> str:
        """Return a hash that is equal for equal arguments, defaults included."""
        values = self._decoder.decode(payload)
        return arguments_digest({name: getattr(values, name) for name in self._names})

    def decode_result(self, result: Any) -> Any:
        """Convert a stored result to the type of the handler's return annotation, if possible."""
        if self.returns is Any or self.returns is None:
            return result
        try:
            return msgspec.convert(result, self.returns, dec_hook=from_plain, str_keys=True)
        except (msgspec.ValidationError, TypeError):
            return result


def _why_unstorable(annotation: Any) -> str | None:
    if annotation in _STORABLE:
        return None
    # Imported here, because most handlers have only plain parameters.
    from taskmill.define.unstorable import why_unstorable

    return why_unstorable(annotation)


def _values_of(names: Sequence[str]) -> Callable[[Any], list[Any]]:
    """Return a function that reads these attributes in order. It is called for every attempt, so it must be fast."""
    match names:
        case ():
            return lambda _values: []
        case (name,):
            return lambda values: [getattr(values, name)]
        case _:
            read = attrgetter(*names)
            return lambda values: list(read(values))


def _is_context(annotation: Any, context_type: type) -> bool:
    """True for ``Context``, and for ``Context | None``, which suits handlers that are also called directly."""
    return annotation is context_type or context_type in get_args(annotation)


def _field(parameter: _Parameter, annotation: Any) -> tuple[Any, ...]:
    """Return the field of the payload struct for a parameter."""
    match parameter.kind:
        case _Parameter.VAR_POSITIONAL:
            return parameter.name, GenericAlias(list, (annotation,)), msgspec.field(default_factory=list[Any])
        case _Parameter.VAR_KEYWORD:
            return parameter.name, GenericAlias(dict, (str, annotation)), msgspec.field(default_factory=dict[str, Any])
        case _ if parameter.default is _Parameter.empty:
            return parameter.name, annotation
        case _:
            default = parameter.default
            return parameter.name, annotation, msgspec.field(default_factory=lambda: default)


def arguments_digest(arguments: Mapping[str, Any]) -> str:
    """Return the key that ``key=True`` derives from arguments."""
    # Imported here, because most task types have no such key.
    from taskmill.define.key_text import canonical_values

    return hashlib.blake2b(canonical_values(arguments, json_encode), digest_size=16).hexdigest()


def encoded_arguments(arguments: Mapping[str, Any], type_name: str) -> bytes:
    """Encode arguments as JSON; raise an error that names the argument that cannot be encoded."""
    try:
        encoded = json_encode(arguments)
    except NOT_JSON:
        for name, value in arguments.items():
            try:
                json_encode(value)
            except NOT_JSON as wrong:
                raise SubmissionError(f"{type_name}: argument {name!r} cannot be stored as JSON: {wrong}") from None
        raise
    if b"null" in encoded:
        for name, value in arguments.items():
            if would_lose_a_float(value, encoded):
                raise SubmissionError(f"{type_name}: argument {name!r} holds NaN or infinity, which JSON cannot store")
    return encoded


def would_lose_a_float(value: object, encoded: bytes) -> bool:
    """True if a value holds NaN or infinity: JSON has neither, and they would silently become null."""
    return b"null" in encoded and _has_unwritable_float(msgspec.to_builtins(value, enc_hook=to_plain))


def _has_unwritable_float(value: object) -> bool:
    if isinstance(value, float):
        return not math.isfinite(value)
    if isinstance(value, dict):
        return any(map(_has_unwritable_float, cast("dict[Any, object]", value).values()))
    if isinstance(value, list | tuple | set | frozenset):
        return any(map(_has_unwritable_float, cast("list[Any]", value)))
    return False


def _read_back(value: object) -> object:
    return msgspec.json.decode(json_encode(value))


def sized_payload(encoded: bytes, type_name: str) -> str:
    if len(encoded) > LARGEST_PAYLOAD:
        raise PayloadTooLarge(
            f"{type_name}: the payload is {len(encoded):,} bytes; at most {LARGEST_PAYLOAD:,} can be stored. "
            "Store the data elsewhere and pass its name."
        )
    return encoded.decode()


def _resolved_hints(
    function: Callable[..., Any], type_name: str, local_names: Mapping[str, Any] | None
) -> dict[str, Any]:
    try:
        return get_type_hints(function, localns=dict(local_names or {}), include_extras=True)
    except NameError as wrong:
        raise ConfigError(
            f"{type_name}: an annotation cannot be resolved: {wrong}. "
            "Import the name at run time, not only for type checking."
        ) from wrong
