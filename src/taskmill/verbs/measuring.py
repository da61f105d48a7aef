"""Measuring: what :mod:`taskmill.metrics` reads. Nothing is counted before it asks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from taskmill.verbs.parts import Parts

if TYPE_CHECKING:
    from taskmill.observe.meter import Meter
    from taskmill.runtime.gauges import Gauges


class Measuring(Parts):
    """Not for users: a collector of metrics is their door to it."""

    def _metered(self) -> Meter:
        """The counters of this scheduler; from the first call on they count."""
        meter = self._settings.meter
        if meter is None:
            from taskmill.observe.meter import Meter

            meter = self._settings.meter = Meter()
            if self._is_open:
                self._connect_meter()
        return meter

    def _connect_meter(self) -> None:
        if self._settings.meter is not None:
            self._bus.meter = self._settings.meter
            self._store.measure(self._settings.meter)

    def _gauges(self) -> Gauges:
        """How things stand in this process; any thread may ask, at any time."""
        from taskmill.runtime.gauges import read_gauges

        dispatcher = self._dispatcher if self._is_open else None
        watching = self._dispatching.watching if dispatcher is not None else None
        watch = None if watching is None else watching.watch
        return read_gauges(self._settings, dispatcher, watch, self._clock.now_ms())
