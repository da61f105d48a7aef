"""The counters and gauges that :mod:`taskmill.metrics` reads. Nothing is counted before it first asks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from taskmill.verbs.parts import Parts

if TYPE_CHECKING:
    from taskmill.observe.counters import Counters
    from taskmill.runtime.gauges import Gauges


class Measuring(Parts):
    """Internal methods for :class:`taskmill.metrics.Collector`; not for users."""

    def _counters(self) -> Counters:
        """Return the counters of this scheduler; counting starts with the first call."""
        counters = self._settings.counters
        if counters is None:
            from taskmill.observe.counters import Counters

            counters = self._settings.counters = Counters()
            if self._is_open:
                self._connect_counters()
        return counters

    def _connect_counters(self) -> None:
        if self._settings.counters is not None:
            self._bus.counters = self._settings.counters
            self._store.measure(self._settings.counters)

    def _gauges(self) -> Gauges:
        """Return the current gauges of this process; safe to call from any thread, at any time."""
        from taskmill.runtime.gauges import read_gauges

        loop = self._loop if self._is_open else None
        machine_watch = self._session.machine_watch if loop is not None else None
        watch = None if machine_watch is None else machine_watch.watch
        return read_gauges(self._settings, loop, watch, self._clock.now_ms())
