"""One SQL text for both engines: the expansion of each macro, and text that must stay unchanged."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from taskmill.store.sql.statements import SQL, Engine, load, positional, spelled
from taskmill.store.sqlite.migrate import migrate
from taskmill.store.sqlite.session import STATEMENTS, Session


@pytest.mark.parametrize(
    ("text", "sqlite", "postgres"),
    [
        ("json_row(a, f(b))", "json_array(a, f(b))", "json_build_array(a, f(b))"),
        ("json_list(a)", "json_group_array(a)", "coalesce(json_agg(a), '[]')"),
        ("json_list(a ORDER BY f(b), c)", "json_group_array(a)", "coalesce(json_agg(a ORDER BY f(b), c), '[]')"),
        (
            "json_list((SELECT b FROM c ORDER BY d))",
            "json_group_array((SELECT b FROM c ORDER BY d))",
            "coalesce(json_agg((SELECT b FROM c ORDER BY d)), '[]')",
        ),
        (
            "json_list(json_row(a, json_row(b)) ORDER BY a)",
            "json_group_array(json_array(a, json_array(b)))",
            "coalesce(json_agg(json_build_array(a, json_build_array(b)) ORDER BY a), '[]')",
        ),
        ("json_map(a, b)", "json_group_object(a, b)", "coalesce(json_object_agg(a, b), '{}')"),
        ("id IN ids($1)", "id IN (SELECT value FROM json_each(?1))", "id = ANY (taskmill_ids($1))"),
        (
            "rows($1, id bigint, key text, task json) AS given",
            "(SELECT value ->> 0 AS id, value ->> 1 AS key, value -> 2 AS task FROM json_each(?1)) AS given",
            "(SELECT (value ->> 0)::bigint AS id, value ->> 1 AS key, value -> 2 AS task"
            " FROM jsonb_array_elements($1::jsonb) AS row (value)) AS given",
        ),
        ("$2::bigint + n", "?2 + n", "$2::bigint + n"),
        ("open = true AND a = 'true'", "open = 1 AND a = 'true'", "open = true AND a = 'true'"),
        ("greatest(a, least(b, c))", "max(a, min(b, c))", "greatest(a, least(b, c))"),
        ("type || '::' || $1", "type || '::' || ?1", "type || '::' || $1"),
        ("t.state::json", "json(t.state)", "t.state::json"),
        ("tags::json ->> 'a'", "tags ->> 'a'", "tags::json ->> 'a'"),
        ("(SELECT a::json)::json", "json((SELECT json(a)))", "(SELECT a::json)::json"),
    ],
)
def test_a_text_is_spelled_for_each_engine(text: str, sqlite: str, postgres: str) -> None:
    assert spelled("sqlite", text) == sqlite
    assert spelled("postgres", text) == postgres


def own_statements(engine: Engine, file: Path) -> dict[str, str]:
    """Return the statements of a file as an engine gets them."""
    return {name: text for name, text in load(engine, file).items() if name not in SQL}


def test_an_engine_has_the_common_body_or_its_own(tmp_path: Path) -> None:
    file = tmp_path / "some.sql"
    file.write_text(
        "-- name: both\n-- Say something.\nSELECT $1;\n\n"
        "-- name: apart\n-- sqlite: a reason\n-- in two lines.\nSELECT 1;\n-- postgres:\nSELECT 2;\n\n"
        "-- name: only_one\n-- postgres:\nSELECT 3;\n\n"
        "-- name: nothing\n-- sqlite: nothing to do.\n-- postgres:\nSELECT 4;\n",
        encoding="utf-8",
    )
    assert own_statements("sqlite", file) == {"both": "SELECT ?1", "apart": "SELECT 1", "nothing": ""}
    assert own_statements("postgres", file) == {
        "both": "SELECT $1",
        "apart": "SELECT 2",
        "only_one": "SELECT 3",
        "nothing": "SELECT 4",
    }


def test_two_statements_with_one_name_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "own.sql"
    file.write_text("-- name: held_tokens\nSELECT 1;\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"own\.sql: .* held_tokens"):
        load("sqlite", file)


def test_a_statement_that_does_not_exist_cannot_be_named() -> None:
    assert SQL["claim"] == "claim"
    with pytest.raises(KeyError):
        SQL["no_such_statement"]


def test_parameters_that_are_used_once_and_in_order_are_passed_as_they_are() -> None:
    assert positional("SELECT ?1 + ?2") == ("SELECT ? + ?", None)
    assert positional("SELECT 1") == ("SELECT 1", None)


def test_parameters_are_repeated_and_moved_to_where_the_statement_has_them() -> None:
    text, ordered = positional("SELECT ?2 || ?1 || ?2")
    assert text == "SELECT ? || ? || ?"
    assert ordered is not None
    assert ordered(["a", "b"]) == ("b", "a", "b")


def test_a_statement_that_leaves_out_a_parameter_is_refused() -> None:
    with pytest.raises(ValueError, match="each of its parameters"):
        positional("SELECT ?2")


def test_no_statement_reaches_sqlite_with_a_numbered_parameter() -> None:
    # A version of Python that warns about them shows whether sessions use these texts: warnings are errors in tests.
    assert any(re.search(r"\?\d", text) for text in STATEMENTS.values())
    assert [name for name, text in STATEMENTS.items() if re.search(r"\?\d", positional(text).text)] == []


def test_a_session_gives_each_parameter_of_a_statement_its_value() -> None:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as raw:
        migrate(raw, ":memory:")
        Session(raw).execute("note_machine", ("a reading", "a name"))
        assert ("a name", "a reading") in raw.execute("SELECT name, value FROM taskmill_setting").fetchall()
