"""What the doctor says of a file: sound, loose, damaged."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.acceptance.command_line import Here

pytestmark = [
    pytest.mark.timeout(40),
    pytest.mark.one_engine(
        "the file is what is examined; what is said of a database is in test_cli_doctor_postgres.py"
    ),
]


def test_doctor_finds_a_sound_file_healthy(here: Here, template: Path) -> None:
    text = here("doctor", template)
    for words in ("integrity", "SQLite", "write-ahead log", "schema", "durability", "0600", "dead letters"):
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
        # Spared, so that it can still be told whose file this was.
        if b"taskmill_schema" not in content[start : start + 4096]:
            content[start : start + 4096] = b"\xa5" * 4096
    file.write_bytes(content)
    document = here.answer("doctor", file, code=1)
    assert document["healthy"] is False
    assert "problem" in {finding["level"] for finding in document["findings"]}
