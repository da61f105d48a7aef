"""The workflows of continuous integration are valid and run everything that the project documents."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from tools.requirements import requirements
from tools.versions import supported_versions

from tests.architecture.sources import ROOT

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def read(name: str) -> dict[Any, Any]:
    workflow: dict[Any, Any] = yaml.safe_load((ROOT / ".github" / "workflows" / name).read_text(encoding="utf-8"))
    return workflow


def commands(job: dict[str, Any]) -> list[str]:
    return [step["run"] for step in job["steps"] if "run" in step]


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.name)
def test_a_workflow_has_jobs_with_steps_and_a_time_limit(file: Path) -> None:
    workflow = read(file.name)
    # YAML 1.1 reads the key `on` as true.
    assert {"name", "permissions", "jobs", True} <= set(workflow)
    for job in workflow["jobs"].values():
        assert job["timeout-minutes"] <= 60
        assert all(("uses" in step) != ("run" in step) for step in job["steps"])
        assert set(job.get("needs", "").split()) <= set(workflow["jobs"])


def test_the_tests_run_on_every_supported_version_and_system() -> None:
    jobs = read("ci.yml")["jobs"]
    assert set(supported_versions()) <= set(jobs["linux"]["strategy"]["matrix"]["python"])
    elsewhere = jobs["elsewhere"]["strategy"]["matrix"]
    assert set(elsewhere["python"]) == set(supported_versions())
    assert {name.partition("-")[0] for name in elsewhere["system"]} == {"macos", "windows"}
    assert commands(jobs["check"]) == ["make check"]
    assert commands(jobs["linux"]) == ["make test"]


def test_the_folders_and_tools_that_workflows_name_exist() -> None:
    named = {
        path
        for file in WORKFLOWS
        for path in re.findall(r"\b(?:tests|tools)/[\w./]+", file.read_text(encoding="utf-8"))
    }
    assert len(named) > 3
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_only_a_tag_publishes_and_no_token_is_kept() -> None:
    workflow = read("release.yml")
    assert workflow[True] == {"push": {"tags": ["v*"]}}
    publish = workflow["jobs"]["publish"]
    assert publish["permissions"] == {"id-token": "write"}
    assert publish["environment"]["name"] == "pypi"
    assert "secrets." not in (ROOT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8")
    checked = commands(workflow["jobs"]["build"])
    assert checked.index("make test") < checked.index("python -m build")
    assert checked[0].startswith("python tools/release.py check")


def test_the_demonstration_needs_the_extras_of_the_command_line_and_of_the_monitor_only() -> None:
    names = {re.split(r"[>=<;\[ ]", one)[0] for one in requirements("cli", "monitor")}
    assert {"msgspec", "rich", "psutil"} <= names
    assert len(names) <= 5
    recipe = subprocess.run(
        ["make", "-n", "demo", "DEMO=nowhere"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert "requirements.py cli monitor" in recipe.stdout
    assert "[dev" not in recipe.stdout
