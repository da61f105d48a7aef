"""The SQL store code that both engines share: which statements run, in which order, and what their results mean.

Modules that only some reads need are attributes of this package and imported at their first use, so a command that asks
one question starts quickly.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from taskmill.store.sql import attempt_errors as attempt_errors
    from taskmill.store.sql import browsing as browsing
    from taskmill.store.sql import cron as cron
    from taskmill.store.sql import damage as damage
    from taskmill.store.sql import explaining as explaining
    from taskmill.store.sql import history as history
    from taskmill.store.sql import machine as machine
    from taskmill.store.sql import paging as paging
    from taskmill.store.sql import queue_state as queue_state
else:

    def __getattr__(name: str) -> object:
        from importlib import import_module

        path = f"{__name__}.{name}"
        try:
            return import_module(path)
        except ModuleNotFoundError as wrong:
            if wrong.name != path:
                raise
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
