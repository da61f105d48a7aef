"""Metrics for Prometheus: ``REGISTRY.register(Collector(scheduler))``.

It needs ``pip install "taskmill[metrics]"``. ``docs/reference/metrics.md`` describes each metric.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from taskmill import ConfigError, Scheduler, blocking

try:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
    from prometheus_client.registry import Collector as PrometheusCollector
except ImportError as wrong:
    raise ImportError('taskmill.metrics needs prometheus-client: pip install "taskmill[metrics]"') from wrong

if TYPE_CHECKING:
    from taskmill.observe.counters import Counters, Histogram
    from taskmill.runtime.gauges import Gauges, GroupGauges

__all__ = ["Collector"]


class Collector(PrometheusCollector):
    """Counts the activity of a scheduler in this process from now on, for Prometheus.

    It may be created before the scheduler is opened and used after it is closed. :meth:`collect` may be called from any
    thread: it reads memory only, and never waits for the store or the event loop.
    """

    def __init__(self, scheduler: Scheduler | blocking.Scheduler) -> None:
        if isinstance(scheduler, blocking.Scheduler):
            scheduler = scheduler._scheduler
        if not isinstance(scheduler, Scheduler):
            raise ConfigError(f"scheduler must be a Scheduler, not {type(scheduler).__name__}")
        self._scheduler = scheduler
        self._meter = scheduler._counters()

    def describe(self) -> list[Metric]:
        """Return names and types without samples; a registry uses them to refuse duplicates."""
        return [*_Counters().families(), *_Gauges().families()]

    def collect(self) -> Iterator[Metric]:
        """Return all metrics with their current values."""
        counters = _Counters()
        counters.read(self._meter)
        yield from counters.families()
        gauges = _Gauges()
        gauges.read(self._scheduler._gauges())
        yield from gauges.families()


class _Counters:
    """The counters since the first collector was created."""

    def __init__(self) -> None:
        self.events = CounterMetricFamily("taskmill_events", "Announced events, by kind.", labels=["kind"])
        self.waits = HistogramMetricFamily(
            "taskmill_task_queue_wait_seconds",
            "Time from submission, or from the due time, to the first start of a task, without paused time.",
            labels=["group"],
        )
        self.runs = HistogramMetricFamily(
            "taskmill_task_duration_seconds",
            "Duration of attempts, by task type and outcome.",
            labels=["type", "ending"],
        )
        self.promotions = CounterMetricFamily(
            "taskmill_aging_promotions",
            "Times that a waiting task aged past a named priority or the urgent line.",
        )
        self.denials = CounterMetricFamily(
            "taskmill_gate_denials",
            "Times that a limit began to hold back waiting tasks, by reason.",
            labels=["reason"],
        )
        self.excess = CounterMetricFamily(
            "taskmill_group_excess_redistributed",
            "Slots lent to a group beyond its minimum and weight because others could not use theirs.",
            labels=["group"],
        )
        self.commit_seconds = HistogramMetricFamily(
            "taskmill_store_commit_seconds", "Duration of transactions, including the wait for the write lock."
        )
        self.commit_requests = HistogramMetricFamily(
            "taskmill_store_commit_batch_size", "Requests that shared a transaction."
        )
        self.sync_seconds = HistogramMetricFamily(
            "taskmill_store_sync_seconds", "Duration of forcing committed data to disk (fsync)."
        )

    def families(self) -> list[Metric]:
        return list(vars(self).values())

    def read(self, counters: Counters) -> None:
        events = counters.events.copy()
        for kind, count in events.items():
            self.events.add_metric([kind], count)
        self.promotions.add_metric([], events["TaskAged"])
        for group, histogram in counters.waits.copy().items():
            _add(self.waits, [group], histogram)
        for (type, ending), histogram in counters.runs.copy().items():
            _add(self.runs, [type, ending], histogram)
        for reason, count in counters.denials.copy().items():
            self.denials.add_metric([reason], count)
        for group, slots in counters.excess.copy().items():
            self.excess.add_metric([group], slots)
        _add(self.commit_seconds, [], counters.commit_seconds)
        _add(self.commit_requests, [], counters.commit_requests)
        _add(self.sync_seconds, [], counters.sync_seconds)


class _Gauges:
    """The current state, as the dispatcher of this process has it in memory."""

    def __init__(self) -> None:
        self.dispatching = GaugeMetricFamily("taskmill_dispatching", "1 if this process dispatches tasks, else 0.")
        self.slots = GaugeMetricFamily("taskmill_slots", "The most tasks that may run at once: max_concurrency.")
        self.taken = GaugeMetricFamily("taskmill_slots_taken", "Slots that running tasks hold.")
        self.running = GaugeMetricFamily("taskmill_tasks_running", "Running tasks, by type.", labels=["type"])
        self.waiting = GaugeMetricFamily(
            "taskmill_tasks_waiting",
            "Waiting tasks that the dispatcher has in memory, by group; a lower bound of all waiting tasks.",
            labels=["group"],
        )
        self.priorities = GaugeMetricFamily(
            "taskmill_task_effective_priority",
            "Running tasks, and the next task of each group, by level of effective priority.",
            labels=["state", "level"],
        )
        self.next_priority = GaugeMetricFamily(
            "taskmill_group_next_priority",
            "Effective priority of the next task of a group: 0 is most urgent, 255 least.",
            labels=["group"],
        )
        self.group_taken = GaugeMetricFamily(
            "taskmill_group_slots_taken", "Slots that running tasks of a group hold.", labels=["group"]
        )
        self.allocation = GaugeMetricFamily(
            "taskmill_group_weight_allocation",
            "The share of a group in slots, if groups have weights or minimums.",
            labels=["group"],
        )
        self.utilization = GaugeMetricFamily(
            "taskmill_group_weight_utilization",
            "Slots that a group holds, divided by its share.",
            labels=["group"],
        )
        self.paused = GaugeMetricFamily("taskmill_paused", "1 for each paused scope.", labels=["scope", "name"])
        self.pressure = GaugeMetricFamily(
            "taskmill_pressure", "The pressure on the machine, from 0 to 1, by source.", labels=["source"]
        )

    def families(self) -> list[Metric]:
        return list(vars(self).values())

    def read(self, gauges: Gauges) -> None:
        self.dispatching.add_metric([], gauges.dispatching)
        self.slots.add_metric([], gauges.slots)
        self.taken.add_metric([], gauges.slots_taken)
        for type, running in gauges.running.items():
            self.running.add_metric([type], running)
        for state, levels in (("running", gauges.running_levels), ("next", gauges.next_levels)):
            for level, tasks in levels.items():
                self.priorities.add_metric([state, level], tasks)
        for scope in gauges.paused:
            self.paused.add_metric([scope.kind, scope.name], 1)
        for source, pressure in gauges.pressures.items():
            self.pressure.add_metric([source], pressure)
        self._read_groups(gauges.groups)

    def _read_groups(self, groups: Mapping[str, GroupGauges]) -> None:
        for name, group in sorted(groups.items()):
            self.waiting.add_metric([name], group.waiting)
            self.group_taken.add_metric([name], group.taken)
            if group.next_priority is not None:
                self.next_priority.add_metric([name], group.next_priority)
            if group.allocated is not None:
                self.allocation.add_metric([name], group.allocated)
                # With more groups than slots, a group may hold a slot for a while although its share is 0.
                self.utilization.add_metric([name], group.taken / max(group.allocated, 1))


def _add(family: HistogramMetricFamily, labels: list[str], histogram: Histogram) -> None:
    buckets, total = histogram.read()
    family.add_metric(labels, [(_bound(bound), count) for bound, count in buckets], total)


def _bound(bound: float) -> str:
    return "+Inf" if bound == float("inf") else repr(bound)
