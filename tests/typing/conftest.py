"""Folders in which mypy caches its analysis of libraries from one run to the next, as it does for its users."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

KeptCache = Callable[[str], Path]


@pytest.fixture(scope="session")
def kept_cache(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> KeptCache:
    """Return the folder of this name in the cache of pytest, which lasts; a new folder if pytest has no cache."""
    cache = pytestconfig.cache if pytestconfig.pluginmanager.hasplugin("cacheprovider") else None
    return tmp_path_factory.mktemp if cache is None else cache.mkdir
