"""Read the arguments of a handler from words such as ``path=a.jpg``, by the parameters that it has published."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from taskmill import PublishedType
from taskmill.cli import quantities
from taskmill.cli.output import WRONG, Refusal
from taskmill.cli.text import compact

SPOKEN = {
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "text": "text",
    "datetime": "an instant such as 2030-01-31T18:30",
    "list": "a JSON list",
    "object": "a JSON object",
    "null": "null",
}


def payload_from(type: PublishedType, words: Sequence[str], json_args: str | None) -> dict[str, Any]:
    """Return the arguments; raise ``Refusal`` if the handler would not take them."""
    payload = {} if json_args is None else _json_object(json_args)
    for word in words:
        name, equals, value = word.partition("=")
        if not name or not equals:
            raise Refusal(f"an argument is written as NAME=VALUE, got {word!r}; {usage(type)}", WRONG)
        if name in payload:
            raise Refusal(f"the argument {name} is given twice; give it once", WRONG)
        payload[name] = _value(type, name, value)
    _check(type, payload)
    return payload


def usage(type: PublishedType) -> str:
    """Return what a task type takes, in one sentence."""
    if type.parameters is None:
        return f"the parameters of {type.name} are not known"
    named = [
        f"{parameter.name} ({_accepted(parameter)}{'' if parameter.required else ', optional'})"
        for parameter in type.parameters
    ]
    more = ["more"] if type.takes_more else []
    return f"{type.name} takes {', '.join([*named, *more]) or 'no arguments'}"


def _json_object(text: str) -> dict[str, Any]:
    try:
        found: object = json.loads(text)
    except ValueError as wrong:
        raise Refusal(f"--json-args is not JSON: {wrong}", WRONG) from None
    if not isinstance(found, dict):
        raise Refusal(f"--json-args must be a JSON object, got {text!r}", WRONG)
    return {str(name): value for name, value in found.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]


def _find(type: PublishedType, name: str) -> Any:
    return next((parameter for parameter in type.parameters or () if parameter.name == name), None)


def _value(type: PublishedType, name: str, word: str) -> Any:
    """Return a word as the parameter takes it: as text if it takes text, else as JSON."""
    parameter = _find(type, name)
    kinds: Sequence[str] = () if parameter is None else parameter.kinds
    choices: Sequence[Any] = () if parameter is None else parameter.choices
    if "text" in kinds or word in choices:
        return word
    if "datetime" in kinds and word != "null":
        return quantities.instant(word, name).isoformat()
    try:
        return json.loads(word)
    except ValueError:
        return word


def _check(type: PublishedType, payload: Mapping[str, Any]) -> None:
    if type.parameters is None:
        return
    known = {parameter.name: parameter for parameter in type.parameters}
    for name, value in payload.items():
        if name not in known:
            if not type.takes_more:
                raise Refusal(f"there is no argument {name}; {usage(type)}", WRONG)
        elif not _fits(value, known[name]):
            raise Refusal(f"{name} must be {_accepted(known[name])}, got {compact(value)}", WRONG)
    if missing := [name for name, parameter in known.items() if parameter.required and name not in payload]:
        raise Refusal(f"the argument {missing[0]} is missing; {usage(type)}", WRONG)


def _fits(value: object, parameter: Any) -> bool:
    if parameter.choices:
        return value in parameter.choices or (value is None and "null" in parameter.kinds)
    return not parameter.kinds or "any" in parameter.kinds or bool(_kinds_of(value).intersection(parameter.kinds))


def _kinds_of(value: object) -> set[str]:
    match value:
        case None:
            return {"null"}
        case bool():
            return {"boolean"}
        case int():
            return {"integer", "number"}
        case float():
            return {"number"}
        case str():
            return {"text", "datetime"}
        case list():
            return {"list"}
        case _:
            return {"object"}


def _accepted(parameter: Any) -> str:
    if parameter.choices:
        return f"one of {', '.join(map(str, parameter.choices))}"
    if "any" in parameter.kinds or not parameter.kinds:
        return "anything"
    return " or ".join(SPOKEN.get(str(kind), str(kind)) for kind in parameter.kinds)
