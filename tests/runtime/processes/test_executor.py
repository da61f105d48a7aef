"""Handlers in worker processes: their results, how they are ended, and that none outlives its scheduler."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Iterator
from io import FileIO
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

from taskmill.execute import worker
from taskmill.execute.in_processes import MOST_IDLE, ProcessExecutor, check_importable
from taskmill.model.attempt import Crashed, Failed, GaveUp, Interrupted, RawOutcome, Succeeded, Unstarted
from tests.runtime.processes import handlers
from tests.runtime.processes.calls import MOMENT, CountingClock, outcome_of, start

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="worker processes need POSIX"),
    pytest.mark.one_engine("the executor is tested without a store"),
]

ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}


@pytest.fixture
def clock() -> CountingClock:
    return CountingClock()


@pytest.fixture
async def executor(clock: CountingClock) -> AsyncIterator[ProcessExecutor]:
    executor = ProcessExecutor(clock)
    yield executor
    await executor.close()
    assert clock.working == 0


@pytest.fixture
def pipe() -> Iterator[tuple[FileIO, FileIO]]:
    reader, writer = os.pipe()
    with FileIO(reader, "r") as ours, FileIO(writer, "w") as theirs:
        yield ours, theirs


async def end_of(reader: FileIO) -> None:
    """Wait until every process that held the other end of the pipe is gone."""
    assert await asyncio.to_thread(reader.read, 1) == b""


# Arguments and results


async def test_a_typed_payload_arrives_as_its_type_and_the_result_is_json(executor: ProcessExecutor) -> None:
    outcome = await outcome_of(executor, handlers.move, handlers.Point(1, MOMENT), 4)
    assert outcome == Succeeded('{"x":5,"at":"2026-03-30T01:30:00Z"}')


async def test_an_async_handler_runs_on_a_loop_of_its_own(executor: ProcessExecutor) -> None:
    assert await outcome_of(executor, handlers.double, 21) == Succeeded("42")


def plain(outcome: RawOutcome) -> RawOutcome:
    """Return the outcome without the details of its exception, which must be there."""
    assert isinstance(outcome, Failed | GaveUp)
    assert outcome.details is not None
    assert outcome.details.traceback is not None
    return msgspec.structs.replace(outcome, details=None)


async def test_an_exception_is_a_failure_and_its_traceback_is_logged_here(
    executor: ProcessExecutor, caplog: pytest.LogCaptureFixture
) -> None:
    assert plain(await outcome_of(executor, handlers.fail, "no é luck")) == Failed("ValueError: no é luck")
    [logged] = [record for record in caplog.records if record.name == "taskmill"]
    assert logged.levelno == logging.WARNING
    assert logged.getMessage().startswith("task 7 (work::fail) attempt 2 raised ValueError: no é luck\nTraceback")
    assert "processes/handlers.py" in logged.getMessage()


async def test_the_words_of_handlers_keep_their_meaning(executor: ProcessExecutor) -> None:
    assert plain(await outcome_of(executor, handlers.refuse)) == GaveUp("never")
    assert plain(await outcome_of(executor, handlers.retry_in_two_seconds)) == Failed("busy", 2000)
    assert plain(await outcome_of(executor, handlers.leave_politely)) == Failed("SystemExit: 3")


async def test_a_result_that_is_not_json_gives_up(executor: ProcessExecutor) -> None:
    outcome = await outcome_of(executor, handlers.unstorable)
    assert isinstance(outcome, GaveUp)
    assert "cannot be stored as JSON" in outcome.error


async def test_a_large_payload_passes_in_pieces(executor: ProcessExecutor) -> None:
    text = "é\n" * 250_000
    outcome = await outcome_of(executor, handlers.fail, text)
    assert isinstance(outcome, Failed)
    assert outcome.error.startswith("ValueError: é\né")


async def test_the_context_tells_about_the_task(executor: ProcessExecutor) -> None:
    outcome = await outcome_of(executor, handlers.read_record, "hello", saved='{"step":3}')
    assert outcome == Succeeded(
        '[7,2,2,{"text":"hello"},{"colour":"blue"},"Söme\\nerror","running","2026-03-29T01:30:00Z",{"step":3},false]'
    )


async def test_saves_and_progress_reach_the_attempt(executor: ProcessExecutor) -> None:
    call = start(executor, handlers.save_and_report, saved='{"old":true}')
    assert await call.outcome() == Succeeded('["old","step","when"]')
    assert call.link.saves == [
        '{"old":true,"step":1}',
        '{"old":true,"step":1,"when":"2026-01-01T00:00:00Z"}',
    ]
    assert call.link.reports[0].message == "a quarter"
    assert call.link.reports[-1].done_bytes == 50
    assert call.link.reports[-1].fraction == 0.5


async def test_saves_of_an_async_handler_are_all_done_when_it_has_ended(executor: ProcessExecutor) -> None:
    call = start(executor, handlers.save_and_report_on_loop)
    assert await call.outcome() == Succeeded("1")
    assert sorted(call.link.saves) == [f'{{"step":{step}}}' for step in (1, 2, 3, 4)]
    assert call.link.reports[-1].fraction == 1


async def test_a_refused_save_raises_in_the_handler(executor: ProcessExecutor) -> None:
    call = start(executor, handlers.told_no)
    call.link.refuses_saves = True
    assert await call.outcome() == Succeeded('"attempt 1 of task 7 is over"')


async def test_state_says_that_it_cannot_cross(executor: ProcessExecutor) -> None:
    outcome = await outcome_of(executor, handlers.ask_for_state)
    assert isinstance(outcome, Succeeded)
    assert "int lives in the scheduler's process" in outcome.result


async def test_a_million_reports_cost_few_messages_and_the_last_one_counts(executor: ProcessExecutor) -> None:
    call = start(executor, handlers.report_a_million_times)
    assert await call.outcome() == Succeeded("null")
    assert call.link.reports[0].fraction == 0
    assert call.link.reports[-1].fraction == 1
    assert len(call.link.reports) < 1000


async def test_a_report_that_was_held_back_is_sent_though_no_other_follows(executor: ProcessExecutor) -> None:
    call = start(executor, handlers.report_twice_and_fall_silent)
    async with asyncio.timeout(60):
        while [report.fraction for report in call.link.reports] != [0.1, 0.2]:
            await call.link.next_report()


async def test_a_report_that_cannot_be_sent_fails_no_handler(executor: ProcessExecutor) -> None:
    assert await outcome_of(executor, handlers.report_nonsense) == Succeeded('"done"')


async def test_a_handler_registered_under_another_name_is_found(executor: ProcessExecutor) -> None:
    check_importable(handlers.renamed.type.function, "work::renamed")
    assert await outcome_of(executor, handlers.renamed, 1) == Succeeded("2")


async def test_ctrl_c_is_ignored_and_there_is_nothing_to_read(executor: ProcessExecutor) -> None:
    outcome = await outcome_of(executor, handlers.signal_settings)
    assert outcome == Succeeded(f'["{signal.SIG_IGN!s}","{signal.SIG_DFL!s}","/dev/null"]')


# The pool


async def test_a_worker_is_used_again(executor: ProcessExecutor) -> None:
    first = await outcome_of(executor, handlers.process_id)
    await outcome_of(executor, handlers.fail, "a failure does not cost the worker")
    assert await outcome_of(executor, handlers.process_id) == first


async def test_calls_at_the_same_time_have_workers_of_their_own(executor: ProcessExecutor) -> None:
    calls = [start(executor, handlers.process_id) for _ in range(MOST_IDLE + 2)]
    outcomes = {await call.outcome() for call in calls}
    assert len(outcomes) == len(calls)
    # The surplus processes were ended, the rest continue.
    assert await outcome_of(executor, handlers.process_id) in outcomes


async def test_an_idle_worker_that_died_is_not_given_a_call(executor: ProcessExecutor) -> None:
    first = await outcome_of(executor, handlers.process_id)
    assert isinstance(first, Succeeded)
    os.kill(int(first.result), signal.SIGKILL)
    os.waitid(os.P_PID, int(first.result), os.WEXITED | os.WNOWAIT)
    second = await outcome_of(executor, handlers.process_id)
    assert isinstance(second, Succeeded)
    assert second != first


async def test_a_thread_left_behind_cannot_speak_for_the_next_call(executor: ProcessExecutor) -> None:
    await outcome_of(executor, handlers.outlive_the_call)
    call = start(executor, handlers.let_the_rest_speak)
    assert await call.outcome() == Succeeded("true")
    assert call.link.reports == []
    assert call.link.saves == []


async def test_a_worker_that_cannot_be_started_is_no_failure_of_the_task(
    executor: ProcessExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    outcome = await outcome_of(executor, handlers.process_id)
    assert isinstance(outcome, Unstarted)
    assert outcome.error.startswith("no worker process could be started: FileNotFoundError")


# Interrupting


@pytest.mark.parametrize("task", [handlers.spin, handlers.wait_forever])
async def test_interrupting_ends_a_handler_that_does_not_listen(executor: ProcessExecutor, task: Any) -> None:
    call = start(executor, task)
    await call.link.first_report()
    call.interrupt()
    assert await call.outcome() == Interrupted()
    call.interrupt()


async def test_a_handler_that_has_only_been_started_can_be_interrupted(executor: ProcessExecutor) -> None:
    call = start(executor, handlers.spin)
    call.interrupt()
    assert await call.outcome() == Interrupted()


async def test_an_interrupted_worker_is_not_used_again(executor: ProcessExecutor) -> None:
    call = start(executor, handlers.spin)
    interrupted = (await call.link.first_report()).message
    call.interrupt()
    await call.outcome()
    outcome = await outcome_of(executor, handlers.process_id)
    assert isinstance(outcome, Succeeded)
    assert outcome.result != interrupted


async def test_asking_twice_kills(executor: ProcessExecutor) -> None:
    call = start(executor, handlers.spin_and_ignore_signals)
    await call.link.first_report()
    call.interrupt()
    call.interrupt()
    assert await call.outcome() == Interrupted()


async def test_patience_ends(executor: ProcessExecutor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "PATIENCE", 0.01)
    call = start(executor, handlers.spin_and_ignore_signals)
    await call.link.first_report()
    call.interrupt()
    assert await call.outcome() == Interrupted()


async def test_processes_that_a_handler_started_end_with_it(clock: CountingClock, pipe: tuple[FileIO, FileIO]) -> None:
    reader, writer = pipe
    inherited = writer.fileno()
    executor = ProcessExecutor(clock, lambda: [inherited])
    call = start(executor, handlers.start_a_process_and_wait, inherited)
    await call.link.first_report()
    writer.close()
    call.interrupt()
    assert await call.outcome() == Interrupted()
    await end_of(reader)
    await executor.close()


async def test_interrupting_a_call_that_is_over_leaves_the_next_one_alone(executor: ProcessExecutor) -> None:
    first = start(executor, handlers.process_id)
    await first.outcome()
    second = start(executor, handlers.spin)
    await second.link.first_report()
    first.interrupt()
    assert second.outcomes == []
    second.interrupt()
    assert await second.outcome() == Interrupted()


# Dying


async def test_a_worker_that_exits_without_an_answer_has_crashed(executor: ProcessExecutor) -> None:
    assert await outcome_of(executor, handlers.exit_with, 3) == Crashed("the worker process died with exit status 3")
    assert await outcome_of(executor, handlers.double, 1) == Succeeded("2")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
async def test_a_worker_that_dies_of_a_signal_has_crashed(executor: ProcessExecutor, number: signal.Signals) -> None:
    outcome = await outcome_of(executor, handlers.die_of, int(number))
    assert outcome == Crashed(f"the worker process died with signal {int(number)} ({number.name})")


async def test_a_crash_is_noticed_though_a_forked_process_holds_the_socket(executor: ProcessExecutor) -> None:
    outcome = await outcome_of(executor, handlers.fork_and_die)
    assert outcome == Crashed("the worker process died with exit status 4")


async def test_workers_inherit_the_right_to_dispatch_and_pass_it_on_to_no_child(
    clock: CountingClock, pipe: tuple[FileIO, FileIO]
) -> None:
    reader, writer = pipe
    inherited = writer.fileno()
    executor = ProcessExecutor(clock, lambda: [inherited])
    assert await outcome_of(executor, handlers.inherits_nothing, inherited) == Succeeded("3")
    writer.close()
    held = asyncio.create_task(end_of(reader))
    assert await outcome_of(executor, handlers.double, 1) == Succeeded("2")
    assert not held.done()
    await executor.close()
    await held


async def test_closing_ends_busy_and_idle_workers(clock: CountingClock, pipe: tuple[FileIO, FileIO]) -> None:
    reader, writer = pipe
    inherited, before = writer.fileno(), set(psutil.Process().children())
    executor = ProcessExecutor(clock, lambda: [inherited])
    busy = start(executor, handlers.spin_and_ignore_signals)
    await busy.link.first_report()
    await outcome_of(executor, handlers.process_id)
    assert len(set(psutil.Process().children()) - before) == 2
    writer.close()
    await executor.close()
    assert busy.outcomes == [Interrupted()]
    await end_of(reader)
    assert set(psutil.Process().children()) <= before, "no worker is left, not even one that has ended"


async def test_workers_die_with_their_scheduler(tmp_path: Path, pipe: tuple[FileIO, FileIO]) -> None:
    reader, writer = pipe
    inherited = writer.fileno()
    script = tmp_path / "scheduler.py"
    script.write_text(
        textwrap.dedent(
            """
            import asyncio, sys
            from tests.runtime.processes import handlers
            from tests.runtime.processes.calls import CountingClock, outcome_of, start
            from taskmill.execute.in_processes import ProcessExecutor

            async def main():
                executor = ProcessExecutor(CountingClock(), lambda: [int(sys.argv[1])])
                calls = [start(executor, task) for task in (handlers.spin, handlers.wait_forever)]
                await outcome_of(executor, handlers.process_id)
                for call in calls:
                    await call.link.first_report()
                print("at work", flush=True)
                await asyncio.Event().wait()

            asyncio.run(main())
            """
        )
    )
    scheduler = subprocess.Popen(
        [sys.executable, str(script), str(inherited)],
        stdout=subprocess.PIPE,
        pass_fds=(inherited,),
        env=ENVIRONMENT,
    )
    with scheduler:
        writer.close()
        assert scheduler.stdout is not None
        assert await asyncio.to_thread(scheduler.stdout.readline) == b"at work\n"
        scheduler.kill()
        await end_of(reader)
