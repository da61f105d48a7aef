"""The address of a database, and what it says to us and not to the server.

``postgresql://ann@db.example/app?notifications=off`` is what libpq understands, and words of our own among its
parameters. They are part of the address so that a program, the command line and the environment say them alike.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from taskmill.errors import ConfigError


class Address(NamedTuple):
    """What was said. ``server`` is the part that libpq reads."""

    server: str
    notifications: bool = True
    """Whether a session is ours for as long as we are connected, and can listen; else a pooler hands them around."""
    create: bool = True
    """Whether tables are made, or brought up to date, if need be."""


def parsed(address: str) -> Address:
    start, mark, query = address.partition("?")
    said: dict[str, bool] = {}
    left: list[str] = []
    for parameter in query.split("&") if mark else ():
        name, _, value = parameter.partition("=")
        if name not in ("notifications", "create"):
            left.append(parameter)
        elif value not in ("on", "off"):
            raise ConfigError(f"store: {name} must be on or off, got {value!r}")
        else:
            said[name] = value == "on"
    return Address(start + ("?" + "&".join(left) if left else ""), **said)


def without_password(address: str) -> str:
    """The address as it may be shown."""
    shown = re.sub(r"(://[^:/@]*):[^@/]*@", r"\1@", address)
    return re.sub(r"(?<=[?&])(password|sslpassword)=[^&]*", r"\1=***", shown)
