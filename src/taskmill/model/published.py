"""A task type as the program that runs it has published it in the store, for callers that do not import the handler."""

from __future__ import annotations

from typing import Any

import msgspec


class Parameter(msgspec.Struct, frozen=True):
    """A parameter of a handler."""

    name: str
    kinds: tuple[str, ...]
    """What it accepts, in JSON: integer, number, boolean, text, datetime, list, object, null; ``any`` if unknown."""
    required: bool
    choices: tuple[Any, ...] = ()
    """The values that it accepts, if they can be listed."""


class PublishedType(msgspec.Struct, frozen=True):
    """A task type that a program has registered."""

    name: str
    parameters: tuple[Parameter, ...] | None = None
    """``None`` if an earlier taskmill has published it, without its parameters."""
    takes_more: bool = False
    """True if the handler takes other arguments as well."""
    computes: tuple[str, ...] = ()
    """The options that its program computes from the arguments. A submission by name does not have them."""


def published_type(name: str, stored: str) -> PublishedType:
    """Read what a program has published; other fields of it are defaults of options."""
    found = msgspec.json.decode(stored, type=_Stored)
    return PublishedType(name, found.parameters, found.takes_more, found.computes)


class _Stored(msgspec.Struct):
    parameters: tuple[Parameter, ...] | None = None
    takes_more: bool = False
    computes: tuple[str, ...] = ()
