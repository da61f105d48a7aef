"""Find the time zone of this machine, with its IANA name if possible.

Cron needs the zone and not the current offset, because the offset changes with daylight saving time. The C library
returns only offsets, so this module reads the same sources in the same order:

1. ``TZ``: a name, a file, or rules such as ``CET-1CEST,M3.5.0,M10.5.0/3``. Empty is UTC.
2. ``/etc/localtime``: usually a link into the zone database; the zone's name is the name of the linked file.
3. ``/etc/timezone``: a name. It counts only if ``/etc/localtime`` is missing or has the same content, because a
   container may mount that file from its host and keep a name of its own.
4. The content of ``/etc/localtime``: a zone without a name.

Without any of these the zone is UTC, as for the C library. A value that cannot be understood is an error: with a
misspelled ``TZ``, nightly work would silently run at the wrong hour.

Windows has none of these sources and its own zone names. There ``TZ`` must be set; the package ``tzdata`` is installed
with taskmill, because Windows has no zone database.
"""

from __future__ import annotations

import io
import os
import re
import struct
import sys
from collections.abc import Mapping
from datetime import UTC, tzinfo
from pathlib import Path
from zoneinfo import TZPATH, ZoneInfo

from taskmill.errors import ConfigError

_DATABASE = "zoneinfo"
_VARIANTS = ("posix", "right")
_NAMES_OF_UTC = {"UTC", "Etc/UTC", "UCT", "Etc/UCT", "Zulu", "Etc/Zulu", "Universal", "Etc/Universal", "GMT", "Etc/GMT"}
_MOST_LINKS = 40
_RULES = re.compile(r"(?:[A-Za-z]{3,}|<[A-Za-z0-9+-]{3,}>)[+-]?[0-9][!-~]*")


def host_zone(environment: Mapping[str, str] = os.environ, root: Path = Path("/")) -> tzinfo:
    """Return the zone of this machine; ``root`` is the directory that contains ``etc``."""
    said = environment.get("TZ")
    if said is not None:
        return _zone_of_tz(said)
    if sys.platform == "win32":
        raise ConfigError(
            "the time zone of this machine is not known: set the environment variable TZ, such as Europe/Berlin"
        )
    return _zone_of_system(root / "etc" / "localtime", root / "etc" / "timezone")


def _zone_of_tz(said: str) -> tzinfo:
    name = said.removeprefix(":")
    if not name:
        return UTC
    zone = _zone_of_file(Path(name)) if name.startswith("/") else _zone_named(name) or _zone_by_rules(name)
    if zone is None:
        raise ConfigError(
            f"the environment variable TZ names an unknown time zone: {said!r}; use an IANA name such as Europe/Berlin"
        )
    return zone


def _zone_of_system(localtime: Path, timezone: Path) -> tzinfo:
    linked = _name_by_links(localtime)
    if linked is not None:
        zone = _zone_named(linked) or _zone_of_file(localtime)
        if zone is None:
            raise ConfigError(f"{localtime} links to the zone {linked!r}, which is not known here: install tzdata")
        return zone
    by_content = _zone_of_file(localtime)
    written = _name_written(timezone)
    if written is not None:
        named = _zone_named(written)
        if named is not None and (by_content is None or _content_of(written) == localtime.read_bytes()):
            return named
    if by_content is not None:
        return by_content
    if localtime.exists():
        raise ConfigError(f"{localtime} cannot be read as a zone: set the environment variable TZ")
    if written is not None:
        raise ConfigError(f"{timezone} names the zone {written!r}, which is not known here: install tzdata")
    return UTC


def _name_by_links(path: Path) -> str | None:
    """Return the name of the zone that ``path`` links to, directly or through other links."""
    unknown: str | None = None
    for _ in range(_MOST_LINKS):
        if not path.is_symlink():
            return unknown
        path = Path(os.path.normpath(path.parent / path.readlink()))
        name = _name_in_database(path)
        if name is not None:
            if _zone_named(name) is not None:
                return name
            unknown = unknown or name
    return unknown


def _name_in_database(path: Path) -> str | None:
    """Return the part of a path after the zone database's folder, without the variant that some databases add."""
    folders = [place for place, part in enumerate(path.parts) if part.startswith(_DATABASE)]
    if not folders:
        return None
    name = path.parts[folders[-1] + 1 :]
    return "/".join(name[1:] if name and name[0] in _VARIANTS else name) or None


def _name_written(path: Path) -> str | None:
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    words = (line.partition("#")[0].strip() for line in lines)
    return next((word for word in words if word), None)


def _zone_named(name: str) -> tzinfo | None:
    try:
        return ZoneInfo(name)
    except (OSError, ValueError, LookupError):
        # UTC needs no database, whichever of its names is used.
        return UTC if name in _NAMES_OF_UTC else None


def _zone_of_file(path: Path) -> tzinfo | None:
    name = _name_in_database(path)
    named = None if name is None else _zone_named(name)
    if named is not None:
        return named
    try:
        with path.open("rb") as file:
            return ZoneInfo.from_file(file, key=str(path))
    except (OSError, ValueError):
        return None


def _content_of(name: str) -> bytes | None:
    for folder in TZPATH:
        try:
            return (Path(folder) / name).read_bytes()
        except OSError:
            continue
    return None


def _zone_by_rules(rules: str) -> tzinfo | None:
    """Return a zone from POSIX rules, by building a zone file that ends with these rules."""
    # The first offset is required: without it any word would be a name of UTC.
    if not _RULES.fullmatch(rules):
        return None
    counts = struct.pack(">6l", 0, 0, 0, 0, 1, 4)
    block = b"TZif2" + bytes(15) + counts + struct.pack(">lBB", 0, 0, 0) + b"UTC\0"
    try:
        return ZoneInfo.from_file(io.BytesIO(block + block + b"\n" + rules.encode() + b"\n"), key=rules)
    except ValueError:
        return None
