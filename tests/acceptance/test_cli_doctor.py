"""``taskmill doctor`` reports whether a file is sound, readable by others or damaged."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from taskmill import __version__
from taskmill.cli.checks import file_system, judge_disk
from tests.acceptance.command_line import Here

pytestmark = [
    pytest.mark.timeout(40),
    pytest.mark.one_engine(
        "the file is what is examined; what is said of a database is in test_cli_doctor_postgres.py"
    ),
]


def test_doctor_finds_a_sound_file_healthy(here: Here, template: Path) -> None:
    text = here("doctor", template)
    for words in ("integrity", "SQLite", "write-ahead log", "schema", "0600", "dead letters"):
        assert words in text
    document = here.answer("doctor", template)
    assert document["healthy"] is True
    assert document["facts"]["integrity"] == "ok"
    levels = {finding["subject"]: finding["level"] for finding in document["findings"]}
    assert levels["dead letters"] == "note"
    assert levels["permissions"] == "ok"
    version = tuple(map(int, document["facts"]["sqlite_version"].split(".")))
    assert levels["SQLite"] == ("ok" if version >= (3, 51, 3) else "note")
    assert ("taskmill[sqlite]" in text) == (version < (3, 51, 3))


def test_doctor_notes_loose_permissions_without_failing(here: Here, file: Path) -> None:
    file.chmod(0o644)
    assert "0644: other users may open it" in here("doctor", file)


def test_doctor_fails_on_a_damaged_file(here: Here, file: Path) -> None:
    content = bytearray(file.read_bytes())
    for start in range(4096, len(content), 4096):
        # Spare this page, so that the doctor still recognizes the file.
        if b"taskmill_schema" not in content[start : start + 4096]:
            content[start : start + 4096] = b"\xa5" * 4096
    file.write_bytes(content)
    document = here.answer("doctor", file, code=1)
    assert document["healthy"] is False
    assert "problem" in {finding["level"] for finding in document["findings"]}


def test_doctor_checks_the_machine_the_disk_and_the_clock(here: Here, template: Path) -> None:
    document = here.answer("doctor", template)
    levels = {finding["subject"]: finding["level"] for finding in document["findings"]}
    assert {"taskmill", "Python", "file system", "free space", "folder", "clock", "dispatcher"} <= levels.keys()
    assert levels["clock"] == levels["Python"] == "ok"
    assert document["facts"]["taskmill"] == __version__
    assert document["facts"]["free_bytes"] > 0


def test_doctor_notes_a_file_that_was_changed_in_the_future(here: Here, file: Path) -> None:
    os.utime(file, (time.time() + 3600,) * 2)
    text = here("doctor", file)
    assert "in the future" in text
    assert "NTP" in text


def test_a_network_file_system_is_a_problem(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    folder = tmp_path / "my share"
    folder.mkdir()
    shown = str(folder).replace(" ", "\\040")
    mounts.write_text(f"/dev/sda1 / ext4 rw 0 0\nserver:/x {shown} nfs4 rw 0 0\n")
    assert file_system(folder, mounts) == "nfs4"
    assert file_system(tmp_path, mounts) == "ext4"
    assert file_system(tmp_path, tmp_path / "missing") is None
    facts: dict[str, str | int | float | None] = {"file_system": "nfs4", "free_bytes": 10_000_000, "file_ahead": -1.0}
    levels = {finding.subject: finding.level for finding in judge_disk(str(folder / "tasks.db"), facts)}
    assert (levels["file system"], levels["free space"]) == ("problem", "problem")


def test_the_report_names_neither_the_store_nor_its_payloads(here: Here, template: Path) -> None:
    report = here("doctor", template, "--report")
    assert report.startswith("```text\n")
    assert report.endswith("```\n")
    assert f"taskmill: {__version__}" in report
    for secret in (str(template), template.name, "a.jpg", "s3://prod"):
        assert secret not in report
