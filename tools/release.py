"""Cut a release: one version, one section of the changelog, one tag.

    python tools/release.py prepare 0.2.0    write the version and cut the changelog; commit and tag it afterwards
    python tools/release.py check v0.2.0     fail unless the package and the changelog agree with a tag
    python tools/release.py notes            print the section of the changelog for the present version

The version is written in ``src/taskmill/__init__.py`` and nowhere else.
"""

from __future__ import annotations

import argparse
import re
import sys
from datetime import UTC, date, datetime
from pathlib import Path

ROOT = Path(__file__).parents[1]
UNRELEASED = "## [Unreleased]"
_VERSION = re.compile(r'^__version__ = "([^"]+)"$', re.MULTILINE)
_HEADING = re.compile(r"^## \[([^\]]+)\](?: - (\d{4}-\d{2}-\d{2}))?$", re.MULTILINE)


class NotReady(Exception):
    """The release cannot be cut; the message says what to do."""


def version_in(source: str) -> str:
    found = _VERSION.findall(source)
    if len(found) != 1:
        raise NotReady('src/taskmill/__init__.py needs exactly one line __version__ = "…"')
    version: str = found[0]
    return version


def with_version(source: str, version: str) -> str:
    """Return the source with a new version, which must be higher than the present one."""
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        raise NotReady(f"{version!r} is not a version such as 0.2.0")
    if _as_numbers(version) <= _as_numbers(present := version_in(source)):
        raise NotReady(f"version {version} is not higher than the present {present}")
    return _VERSION.sub(f'__version__ = "{version}"', source)


def _as_numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def sections(changelog: str) -> dict[str, tuple[str | None, str]]:
    """Return the date and the text of each section of a changelog, by version."""
    headings = list(_HEADING.finditer(changelog))
    ends = [*(heading.start() for heading in headings[1:]), len(changelog)]
    return {
        heading[1]: (heading[2], changelog[heading.end() : end].strip())
        for heading, end in zip(headings, ends, strict=True)
    }


def cut(changelog: str, version: str, day: date) -> str:
    """Return the changelog with its unreleased changes as the section of a version, below an empty one."""
    found = sections(changelog)
    if version in found:
        raise NotReady(f"CHANGELOG.md has a section for {version} already")
    if not found.get("Unreleased", (None, ""))[1]:
        raise NotReady(f"CHANGELOG.md has no changes under {UNRELEASED}")
    return changelog.replace(UNRELEASED, f"{UNRELEASED}\n\n## [{version}] - {day.isoformat()}", 1)


def notes(changelog: str, version: str) -> str:
    """Return the changes of a released version."""
    day, text = sections(changelog).get(version, (None, ""))
    if day is None or not text:
        raise NotReady(f"CHANGELOG.md has no dated section for {version}; run tools/release.py prepare {version}")
    return text


def check(tag: str, source: str, changelog: str) -> None:
    """Raise :class:`NotReady` unless a tag, the package and the changelog name the same version."""
    version = version_in(source)
    if tag != f"v{version}":
        raise NotReady(f"the tag {tag} does not fit the version {version} of the package")
    notes(changelog, version)


def main() -> int:
    parser = argparse.ArgumentParser(description="Cut a release.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("prepare", help="write the version and cut the changelog").add_argument("version")
    commands.add_parser("check", help="compare a tag with the package and the changelog").add_argument("tag")
    commands.add_parser("notes", help="print the changes of the present version")
    arguments = parser.parse_args()
    package, log = ROOT / "src" / "taskmill" / "__init__.py", ROOT / "CHANGELOG.md"
    source, changelog = package.read_text(encoding="utf-8"), log.read_text(encoding="utf-8")
    try:
        if arguments.command == "prepare":
            version: str = arguments.version
            # Make both texts before writing one of them.
            source, changelog = with_version(source, version), cut(changelog, version, datetime.now(UTC).date())
            package.write_text(source, encoding="utf-8")
            log.write_text(changelog, encoding="utf-8")
            print(f"Wrote version {version}. Next: commit it, then git tag v{version} and push both.")
        elif arguments.command == "check":
            check(arguments.tag, source, changelog)
        else:
            print(notes(changelog, version_in(source)))
    except NotReady as wrong:
        print(wrong, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
