"""A release has one version, one section of the changelog and one tag, and they agree."""

from __future__ import annotations

from datetime import date

import pytest
from tools.release import NotReady, check, cut, notes, sections, version_in, with_version

import taskmill
from tests.architecture.sources import PACKAGE, ROOT

SOURCE = 'name = "taskmill"\n__version__ = "0.1.0"\n'
CHANGELOG = """# Changelog

About this file.

## [Unreleased]

### Added

- A thing.

## [0.0.9] - 2026-01-02

- The first.
"""
DAY = date(2026, 11, 17)


def test_the_version_is_written_in_one_place() -> None:
    assert version_in((PACKAGE / "__init__.py").read_text(encoding="utf-8")) == taskmill.__version__
    assert taskmill.__version__ not in (ROOT / "pyproject.toml").read_text(encoding="utf-8")


def test_the_version_of_this_project_has_its_section_of_the_changelog() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    check(f"v{taskmill.__version__}", (PACKAGE / "__init__.py").read_text(encoding="utf-8"), changelog)
    unreleased = sections(changelog)["Unreleased"][1]
    after = sections(cut(changelog.replace("## [Unreleased]", "## [Unreleased]\n\n- More."), "999.0.0", DAY))
    assert after["Unreleased"] == (None, "")
    assert after["999.0.0"] == ("2026-11-17", f"- More.\n\n{unreleased}".strip())


def test_cutting_moves_all_changes_into_the_section_of_the_version() -> None:
    changelog = cut(CHANGELOG, "0.2.0", DAY)
    assert list(sections(changelog)) == ["Unreleased", "0.2.0", "0.0.9"]
    assert notes(changelog, "0.2.0") == "### Added\n\n- A thing."
    assert changelog.startswith("# Changelog\n\nAbout this file.\n\n## [Unreleased]\n\n## [0.2.0] - 2026-11-17\n\n###")


def test_a_release_without_changes_or_with_a_known_version_is_refused() -> None:
    with pytest.raises(NotReady, match="no changes"):
        cut(cut(CHANGELOG, "0.2.0", DAY), "0.3.0", DAY)
    with pytest.raises(NotReady, match=r"0\.0\.9 already"):
        cut(CHANGELOG, "0.0.9", DAY)


def test_the_new_version_must_be_higher() -> None:
    assert version_in(with_version(SOURCE, "0.10.0")) == "0.10.0"
    for wrong in ("0.1.0", "0.0.11", "1.0", "v1.0.0", "latest"):
        with pytest.raises(NotReady):
            with_version(SOURCE, wrong)


def test_a_tag_must_fit_the_package_and_the_changelog() -> None:
    source, changelog = with_version(SOURCE, "0.2.0"), cut(CHANGELOG, "0.2.0", DAY)
    check("v0.2.0", source, changelog)
    with pytest.raises(NotReady, match=r"v0\.3\.0 does not fit the version 0\.2\.0"):
        check("v0.3.0", source, changelog)
    with pytest.raises(NotReady, match=r"prepare 0\.2\.0"):
        check("v0.2.0", source, CHANGELOG)
