"""Which types of tasks can be run here."""

from __future__ import annotations

from taskmill.define.registry import Registry
from taskmill.observe.log import logger


class KnownTypes:
    """Says whether a handler is registered; if not, the log says so once."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._unknown: set[str] = set()

    def __call__(self, type: str) -> bool:
        if self._registry.find(type) is not None:
            return True
        if type not in self._unknown:
            self._unknown.add(type)
            logger.warning("no handler for %s is registered here; its tasks wait", type)
        return False
