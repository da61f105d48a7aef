"""The engine compared with a plain model: random programs of submitting, running, cancelling, waiting, reviving and
restarting, on the manual clock. After every step both must agree about every task, and about the order of attempts.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, multiple, rule

from taskmill import Context, Domain, DuplicateTask, GiveUp, Retry, RetryLater, Scheduler
from taskmill.model.records import HistoryRecord
from taskmill.testing import ManualClock
from tests.repetition import often

DELAY = 3
RETRIES = 2
scripts = st.lists(st.sampled_from(["ok", "fail", "later", "give up"]), max_size=4)


@dataclass
class ModelTask:
    """The expected state of a task."""

    id: int
    key: str | None
    priority: int
    script: list[str]
    queued_at: float
    due_at: float | None
    expires_at: float | None
    place_id: int
    state: str = "pending"
    attempts: int = 0
    retries: int = 0

    @property
    def is_active(self) -> bool:
        return self.state in ("pending", "scheduled")


@dataclass
class Model:
    """The expected state of the queue, which runs one task at a time."""

    now: float = 0
    tasks: dict[int, ModelTask] = field(default_factory=dict[int, ModelTask])
    ran: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])

    def holder(self, key: str | None) -> ModelTask | None:
        return next((t for t in self.tasks.values() if t.is_active and key is not None and t.key == key), None)

    def expire(self) -> None:
        """End all tasks past their deadline, whether or not a scheduler dispatches."""
        for task in self.tasks.values():
            if task.is_active and task.expires_at is not None and task.expires_at <= self.now:
                task.state = "expired"

    def run(self) -> None:
        while True:
            self.expire()
            for task in self.tasks.values():
                if task.state == "scheduled" and task.due_at is not None and task.due_at <= self.now:
                    task.state = "pending"
            waiting = [task for task in self.tasks.values() if task.state == "pending"]
            if not waiting:
                return
            task = min(waiting, key=lambda task: (task.priority, task.queued_at, task.place_id))
            task.attempts += 1
            self.ran.append((task.id, task.attempts))
            word = task.script[task.attempts - 1] if task.attempts <= len(task.script) else "ok"
            if word == "ok":
                task.state = "completed"
            elif word == "give up":
                task.state = "failed"
            elif task.retries >= RETRIES:
                task.state = "dead_letter"
            else:
                task.retries += 1
                if word == "later":
                    task.state, task.due_at = "scheduled", self.now + DELAY


class EngineAgainstModel(RuleBasedStateMachine):
    tasks = Bundle("tasks")

    @initialize(on_file=st.booleans())
    def open(self, on_file: bool) -> None:
        self.runner = asyncio.Runner()
        self.folder = tempfile.TemporaryDirectory() if on_file else None
        self.clock = ManualClock()
        self.model = Model()
        self.ran: list[tuple[int, int]] = []
        self.domain = Domain("m", retry=Retry.constant(RETRIES, delay=0))

        @self.domain.task
        async def scripted(ctx: Context, script: list[str]) -> None:
            self.ran.append((ctx.task.id, ctx.attempt))
            word = script[ctx.attempt - 1] if ctx.attempt <= len(script) else "ok"
            if word == "fail":
                raise ValueError(word)
            if word == "later":
                raise RetryLater(word, after=DELAY)
            if word == "give up":
                raise GiveUp(word)

        self.scripted = scripted
        self._open()

    def _open(self) -> None:
        store = str(Path(self.folder.name) / "t.db") if self.folder else ":memory:"
        self.scheduler = Scheduler(
            store, domains=[self.domain], max_concurrency=1, clock=self.clock, retention=None, durability="process"
        )
        self.runner.run(self.scheduler.open())

    @rule(
        target=tasks,
        script=scripts,
        priority=st.integers(0, 3),
        key=st.none() | st.sampled_from("ab"),
        strategy=st.sampled_from(["skip", "reject", "supersede", "requeue"]),
        delay=st.sampled_from([0, 0, 1, 5]),
        ttl=st.sampled_from([None, None, 0, 2, 10]),
    )
    def submit(
        self, script: list[str], priority: int, key: str | None, strategy: str, delay: int, ttl: int | None
    ) -> Any:
        options: dict[str, Any] = {"priority": priority, "on_duplicate": strategy, "ttl": ttl, "run_after": delay}
        if key is not None:
            options["key"] = key
        holder = self.model.holder(key)
        try:
            handle = self.runner.run(self.scheduler.submit(self.scripted.options(**options).prepare(script)))
        except DuplicateTask as refused:
            return self._refused(refused.existing_id, strategy, holder)
        place, place_id = self.model.now, handle.id
        if holder is not None and strategy == "supersede":
            assert (handle.kind, handle.replaced_id) == ("superseded", holder.id)
            holder.state = "superseded"
            if not delay and holder.queued_at <= place:
                place, place_id = holder.queued_at, holder.place_id
        elif holder is not None:
            assert strategy in ("skip", "requeue")
            assert handle.id == holder.id
            assert handle.kind == ("upgraded" if priority < holder.priority else "duplicate")
            holder.priority = min(holder.priority, priority)
            return multiple()
        now = self.model.now
        assert handle.id == max(self.model.tasks, default=0) + 1
        self.model.tasks[handle.id] = ModelTask(
            handle.id,
            key,
            priority,
            script,
            queued_at=now + delay if delay else place,
            due_at=now + delay if delay else None,
            expires_at=None if ttl is None else now + max(ttl, 0.001),
            place_id=place_id,
            state="scheduled" if delay else "pending",
        )
        return handle.id

    def _refused(self, existing_id: int, strategy: str, holder: ModelTask | None) -> Any:
        assert holder is not None
        assert (strategy, existing_id) == ("reject", holder.id)
        return multiple()

    @rule(task=tasks)
    def cancel(self, task: int) -> None:
        model = self.model.tasks[task]
        assert self.runner.run(self.scheduler.cancel(task)) == model.is_active
        if model.is_active:
            model.state = "cancelled"

    @rule(task=tasks)
    def retry_dead(self, task: int) -> None:
        model = self.model.tasks[task]
        if model.state == "dead_letter" and self.model.holder(model.key) is None:
            self.runner.run(self.scheduler.retry_dead(task))
            model.state, model.retries, model.due_at = "pending", 0, None
            model.queued_at, model.expires_at, model.place_id = self.model.now, None, task

    @rule(seconds=st.integers(1, 6))
    def time_passes(self, seconds: int) -> None:
        self.runner.run(self.clock.advance(seconds))
        self.model.now += seconds
        self.model.expire()

    @rule()
    def run_until_idle(self) -> None:
        self.runner.run(self.scheduler.run_until_idle())
        self.model.run()

    @rule()
    def restart(self) -> None:
        if self.folder is not None:
            self.runner.run(self.scheduler.close())
            self._open()

    @invariant()
    def engine_and_model_agree(self) -> None:
        if not hasattr(self, "scheduler"):
            return
        assert self.ran == self.model.ran
        for task in self.model.tasks.values():
            record = self.runner.run(self.scheduler.get(task.id))
            state: str = record.ending if isinstance(record, HistoryRecord) else record.status
            assert (task.id, state, record.attempt) == (task.id, task.state, task.attempts)
            assert (record.priority, record.key) == (task.priority, task.key)
            if task.is_active:
                assert record.retries == task.retries
                if task.state == "scheduled" and task.due_at is not None:
                    assert record.run_at == self.clock.now() + timedelta(seconds=task.due_at - self.model.now)
        counts = self.runner.run(self.scheduler.snapshot()).counts
        for word, count in counts.items():
            assert count == sum(task.state == word for task in self.model.tasks.values())

    def teardown(self) -> None:
        if hasattr(self, "scheduler"):
            self.runner.run(self.scheduler.close())
            self.runner.close()
            if self.folder is not None:
                self.folder.cleanup()


TestEngineAgainstModel = EngineAgainstModel.TestCase
TestEngineAgainstModel.settings = settings(
    max_examples=int(os.environ.get("TASKMILL_MODEL_PROGRAMS", often(10))), stateful_step_count=30, deadline=None
)
