"""One text for both engines: what each macro becomes, and what is left alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from taskmill.store.sql.statements import SQL, load, named, spelled


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


def test_an_engine_has_the_common_body_or_its_own(tmp_path: Path) -> None:
    file = tmp_path / "some.sql"
    file.write_text(
        "-- name: both\n-- Say something.\nSELECT $1;\n\n"
        "-- name: apart\n-- sqlite: a reason\n-- in two lines.\nSELECT 1;\n-- postgres:\nSELECT 2;\n\n"
        "-- name: only_one\n-- postgres:\nSELECT 3;\n\n"
        "-- name: nothing\n-- sqlite: nothing to do.\n-- postgres:\nSELECT 4;\n",
        encoding="utf-8",
    )
    assert dict(named("sqlite", file)) == {"both": "SELECT ?1", "apart": "SELECT 1", "nothing": ""}
    assert dict(named("postgres", file)) == {
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
