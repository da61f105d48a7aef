"""The one place that loads psutil."""

from __future__ import annotations

from types import ModuleType

from taskmill.errors import ConfigError

INSTALL = 'pip install "taskmill[monitor]"'


def psutil_for(what: str) -> ModuleType:
    """psutil, or an error that says what needs it and how to get it."""
    try:
        import psutil
    except ImportError as missing:
        raise ConfigError(f"{what} needs psutil, which is not installed: {INSTALL}") from missing
    library: ModuleType = psutil
    return library
