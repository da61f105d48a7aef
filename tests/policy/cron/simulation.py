"""A cron scheduler without a store, threads or a loop: the decisions, driven through simulated time and checked.

Each step is compared with the plain model, every start is recorded, and a violation fails at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from zoneinfo import ZoneInfo

from taskmill.model.cron import Cron, CronState
from taskmill.policy.cron.decisions import (
    Agenda,
    Due,
    due,
    failed,
    interrupted,
    next_moment,
    rewound,
    started,
    succeeded,
)
from taskmill.policy.cron.registrations import (
    Difference,
    Reconciliation,
    Registration,
    checked_registrations,
    reconciled,
)
from tests.policy.cron.plain_model import MINUTE, Expected, PlainTask


class Start(NamedTuple):
    """A run that began, by the wall clock."""

    at: int
    name: str
    reason: str
    occurrence: int


class Plan(NamedTuple):
    """How long a run takes, and whether it succeeds."""

    lasts: int
    succeeds: bool


@dataclass
class Running:
    ends_at: int
    plan: Plan


@dataclass
class World:
    """Simulated time: `real` only grows; the wall clock is ahead of it by `shift`, which the test changes."""

    zone: ZoneInfo
    begins_at: int
    plans: Sequence[Plan] = (Plan(0, True),)
    real: int = 0
    shift: int = 0
    is_active: bool = False
    stored: dict[str, CronState] = field(default_factory=dict)
    declared: dict[str, Registration] = field(default_factory=dict)
    agenda: Agenda = field(default_factory=Agenda)
    running: dict[str, Running] = field(default_factory=dict)
    starts: list[Start] = field(default_factory=list)
    differences: list[Difference] = field(default_factory=list)
    models: dict[str, PlainTask] = field(default_factory=dict)
    successes: Counter[tuple[str, int]] = field(default_factory=Counter)
    looked_at: int = 0
    wakes_at: int = 0
    noticed_shift: int = 0
    planned: int = 0

    @property
    def wall(self) -> int:
        return self.begins_at + self.real + self.shift

    # Actions of the program

    def initialize(self, *tasks: tuple[str, str, float]) -> Reconciliation:
        assert not self.is_active
        assert not self.running
        good = checked_registrations([Cron(name, text, print, delay) for name, text, delay in tasks], lambda _: None)
        outcome = reconciled(self.stored, good, self.wall, self.zone)
        self.stored = {state.name: state for state in outcome.states}
        self.declared = {one.name: one for one in good}
        self.differences.append(outcome.difference)
        self._model_initialize(good)
        self.is_active, self.agenda = True, Agenda()
        self.looked_at, self.noticed_shift = self.real, self.shift
        for name in self.stored:
            self._plan_next(name)
        self._poll()
        return outcome

    def stop(self, timeout: int | None = None) -> None:
        """Wait for running tasks until the timeout; interrupt the rest."""
        self.is_active = False
        until = None if timeout is None else self.real + timeout
        while self.running:
            name = min(self.running, key=lambda running: self.running[running].ends_at)
            if until is not None and self.running[name].ends_at > until:
                break
            self.real = max(self.real, self.running[name].ends_at)
            self._end(name)
        if self.running and until is not None:
            self.real = until
        for name in sorted(self.running):
            self.stored[name] = interrupted(self.stored[name], self.wall)
            self.models[name].cut(self.wall)
            del self.running[name]

    def crash(self) -> None:
        self.is_active = False
        self.running.clear()

    # Passing time

    def let_pass(self, ms: int) -> None:
        end = self.real + ms
        while True:
            ends = [run.ends_at for run in self.running.values()]
            self.real = max(self.real, min([end, *ends, *([self.wakes_at] if self.is_active else [])]))
            for name in [name for name, run in self.running.items() if run.ends_at <= self.real]:
                self._end(name)
            if self.is_active:
                self._poll()
            # A run of no duration ends within this moment.
            if self.real >= end and all(run.ends_at > end for run in self.running.values()):
                return

    def step_clock(self, ms: int, *, noticed: bool = True) -> None:
        """Set the wall clock. Unless the step is noticed at once, it is noticed at the next poll."""
        self.shift += ms
        if noticed and self.is_active:
            self._poll()

    # Actions of the engine

    def _poll(self) -> None:
        self._notice_steps()
        names = self.agenda.take_due(self.wall)
        expected = {name: why for name in self.stored if (why := self.models[name].expected(self.wall))}
        begun: dict[str, Expected] = {}
        for name in names:
            found = due(self.stored[name], self.declared[name].expression, self.wall, self.zone)
            if found is None:
                self._plan_next(name)
            else:
                begun[name] = Expected(found.reason.value, found.occurrence)
                self._start(name, found)
        assert begun == expected, "exactly the due tasks start, with the reason and the occurrence of the plain model"
        self.looked_at = self.real
        # Wake at least once a minute: the wall clock may have been set.
        latest, earliest = self.wall + MINUTE, self.agenda.earliest()
        wakes_at = latest if earliest is None else max(self.wall, min(earliest, latest))
        self.wakes_at = self.real + wakes_at - self.wall
        assert self.real <= self.wakes_at <= self.real + MINUTE, "never sleep for more than a minute"

    def _notice_steps(self) -> None:
        step = self.noticed_shift - self.shift
        self.noticed_shift = self.shift
        if step > 0:
            # The wall clock at the last poll, converted to its present setting.
            then = self.wall - (self.real - self.looked_at)
            for name, state in self.stored.items():
                self.stored[name] = rewound(state, then, step)
                self.models[name].clock_was_put_back(then, step)
                self._plan_next(name)

    def _start(self, name: str, why: Due) -> None:
        assert self.is_active, "nothing starts before initialize or after stop"
        assert name not in self.running, "a task never overlaps itself"
        if why.fires:
            assert why.occurrence <= self.wall
            assert self.models[name].occurs(why.occurrence), "every firing is for an occurrence"
            assert why.occurrence not in self.models[name].ran, "no occurrence fires twice"
        self.models[name].start(Expected(why.reason.value, why.occurrence), self.wall)
        self.stored[name] = started(self.stored[name], self.declared[name].expression, why, self.wall, self.zone)
        plan = self.plan_of(name)
        self.running[name] = Running(self.real + plan.lasts, plan)
        self.starts.append(Start(self.wall, name, why.reason.value, why.occurrence))
        self._plan_next(name)

    def plan_of(self, _name: str) -> Plan:
        """Return the plan of the run that begins."""
        self.planned += 1
        return self.plans[(self.planned - 1) % len(self.plans)]

    def _end(self, name: str) -> None:
        succeeds = self.running.pop(name).plan.succeeds
        occurrence = self.models[name].occurrence
        assert occurrence is not None
        if succeeds:
            self.successes[name, occurrence] += 1
            assert self.successes[name, occurrence] == 1, "at most one success per occurrence"
        self.stored[name] = (succeeded if succeeds else failed)(self.stored[name], self.wall)
        self.models[name].end(self.wall, success=succeeds)
        self._plan_next(name)

    def _plan_next(self, name: str) -> None:
        state = self.stored[name]
        assert state.is_running == self.models[name].is_running
        assert state.retry_at == self.models[name].retry_at
        self.agenda.put(name, next_moment(state, self.declared[name].expression, self.zone))

    def _model_initialize(self, good: Sequence[Registration]) -> None:
        before, self.models = self.models, {}
        for one in good:
            model = before.get(one.name)
            if model is None:
                model = PlainTask.new(one.expression.text, one.retry_delay_ms, self.wall, self.zone)
            else:
                model.initialized(one.expression.text, one.retry_delay_ms, self.wall)
            self.models[one.name] = model
        # After a restart, runs of more than a day ahead and removed tasks may run again.
        self.successes = Counter(
            {
                key: count
                for key, count in self.successes.items()
                if key[0] in self.models and key[1] in self.models[key[0]].ran
            }
        )
