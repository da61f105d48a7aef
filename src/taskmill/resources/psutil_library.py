"""The only place that imports psutil."""

from __future__ import annotations

from types import ModuleType

from taskmill.errors import ConfigError

INSTALL = 'pip install "taskmill[monitor]"'


def psutil_for(what: str) -> ModuleType:
    """Return psutil, or raise an error that names the feature and how to install it."""
    try:
        import psutil
    except ImportError as missing:
        raise ConfigError(f"{what} needs psutil, which is not installed: {INSTALL}") from missing
    library: ModuleType = psutil
    return library
