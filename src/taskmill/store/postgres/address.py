"""The address of a database, with taskmill's own parameters in it.

``postgresql://ann@db.example/app?notifications=off`` is a libpq URI with additional parameters for taskmill. They are
part of the address so that programs, the command line and environment variables can all set them the same way.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from taskmill.errors import ConfigError


class Address(NamedTuple):
    """A parsed address. ``server`` is the part for libpq."""

    server: str
    notifications: bool = True
    """True if a connection keeps its session, and so can LISTEN; False behind a pooler in transaction mode."""
    create: bool = True
    """True if missing tables are created and old ones migrated."""


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
    """Return the address without its password, as it may be shown."""
    shown = re.sub(r"(://[^:/@]*):[^@/]*@", r"\1@", address)
    return re.sub(r"(?<=[?&])(password|sslpassword)=[^&]*", r"\1=***", shown)
