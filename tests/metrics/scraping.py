"""Support for reading metrics as Prometheus does."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from taskmill import Scheduler, blocking
from taskmill.metrics import Collector


class Scrape:
    """A registry with one collector; ``scrape(name, label=value)`` is the value of a sample, 0 if there is none."""

    def __init__(self, scheduler: Scheduler | blocking.Scheduler) -> None:
        self.registry = CollectorRegistry(auto_describe=True)
        self.collector = Collector(scheduler)
        self.registry.register(self.collector)

    def __call__(self, name: str, **labels: str) -> float:
        return self.registry.get_sample_value(name, labels) or 0.0

    def all(self, name: str) -> dict[tuple[str, ...], float]:
        """Return every sample of a name, by the values of its labels in the order of their names."""
        return {
            tuple(value for _, value in sorted(sample.labels.items())): sample.value
            for family in self.registry.collect()
            for sample in family.samples
            if sample.name == name
        }

    def events(self, kind: str) -> float:
        return self("taskmill_events_total", kind=kind)

    def denials(self) -> dict[str, float]:
        """Return the holds that have begun, by reason."""
        return {reason: count for (reason,), count in self.all("taskmill_gate_denials_total").items() if count}
