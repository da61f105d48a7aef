"""Shared fixtures: a scheduler in memory or on a file, on a clock moved by hand."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(params=["memory", "file"])
def any_store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The name of a store: each test that asks for it runs once per kind."""
    return ":memory:" if request.param == "memory" else str(tmp_path / "tasks.db")
