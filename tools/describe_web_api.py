"""Write docs/reference/web-api.md from the description of the API.

``tests/web/test_description.py`` fails if the page is not the one that this program writes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from taskmill.web.description import description

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "web-api.md"

INTRODUCTION = """\
# The API of the page

`taskmill web` and `taskmill.web.dashboard` answer with JSON below `api/`, relative to where the page is mounted.
[Watch in a browser](../how-to/watch-in-a-browser.md) says how to serve it and who may use it. This page is made from
the OpenAPI 3.1 description at `api/openapi.json` by `tools/describe_web_api.py`.

Programs send `Authorization: Bearer TOKEN`. The JSON is that of `taskmill.to_json`: instants are ISO 8601 in UTC,
durations are seconds. Unknown parameters and fields are refused with 422. Every refusal is a `Problem`: a stable word
(`error`) and a sentence (`message`).
"""


def page() -> str:
    """Return the text of the page."""
    document = description()
    parts = [INTRODUCTION, "## Requests\n"]
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            parts.append(_operation(f"{method.upper()} {path.removeprefix('/')}", operation))
    parts.append("## Shapes\n")
    for name, schema in document["components"]["schemas"].items():
        parts.append(_shape(name, schema))
    return "\n".join(parts)


def _operation(title: str, operation: dict[str, Any]) -> str:
    lines = [f"### `{title}`\n", f"{operation['summary']}.\n"]
    if "description" in operation:
        lines.append(f"{operation['description']}\n")
    if parameters := operation.get("parameters"):
        lines += ["| parameter | in | type | meaning |", "|---|---|---|---|"]
        for each in parameters:
            lines.append(
                f"| `{each['name']}` | {each['in']} | {_type(each['schema'])} | {_meaning(each, each['schema'])} |"
            )
        lines.append("")
    facts: list[str] = []
    if body := operation.get("requestBody"):
        needed = "" if body["required"] else ", may be left out"
        facts.append(f"Body: {_type(body['content']['application/json']['schema'])}{needed}.")
    answer = operation["responses"].get("200", {}).get("content", {}).get("application/json")
    if answer is not None:
        facts.append(f"Answer: {_type(answer['schema'])}.")
    if facts:
        lines.append(" ".join(facts) + "\n")
    return "\n".join(lines)


def _shape(name: str, schema: dict[str, Any]) -> str:
    lines = [f"### {name}\n"]
    if "description" in schema:
        lines.append(f"{schema['description']}\n")
    if schema.get("properties"):
        lines += ["| field | type | meaning |", "|---|---|---|"]
        for field, inner in schema["properties"].items():
            lines.append(f"| `{field}` | {_type(inner)} | {_meaning(inner, inner)} |")
        lines.append("")
    return "\n".join(lines)


def _meaning(described: dict[str, Any], schema: dict[str, Any]) -> str:
    text = described.get("description", "")
    bounds = [
        f"{word} {schema[key]:,}"
        for key, word in (("minimum", "at least"), ("exclusiveMinimum", "more than"), ("maximum", "at most"))
        if key in schema and schema[key] < 2**62
    ]
    if "default" in schema and schema["default"] != "":
        bounds.append(f"default {str(schema['default']).replace('False', 'false')}")
    return " ".join([text, f"({', '.join(bounds)})" if bounds else ""]).strip().replace("|", "\\|")


def _type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_type(each) for each in schema["anyOf"]))
    kind = schema.get("type")
    if kind == "array":
        return f"list of {_type(schema['items'])}" if "items" in schema else "list"
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"map to {_type(schema['additionalProperties'])}"
    if schema.get("format") == "date-time":
        return "instant"
    return kind or "any"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
