"""An ending that is both committed here and read from the store is announced once, whichever comes first."""

from __future__ import annotations

import pytest

from taskmill.observe.announced import KEPT_MS, Announced

pytestmark = pytest.mark.one_engine("no store is asked: the bookkeeping is a value in memory")

RETRY = {"will_retry": True}


def test_an_event_announced_here_is_not_new_when_it_is_read() -> None:
    announced = Announced()
    assert announced.is_news_of_this_process("TaskCancelled", 1, 1000, {})
    assert not announced.is_new_ending(1, 999)
    assert announced.is_new_ending(1, 1001), "it was revived and has ended again, elsewhere"


def test_an_event_read_before_it_was_announced_here_is_not_announced_again() -> None:
    announced = Announced()
    assert announced.may_be_new_ending(1, 1000)
    assert announced.is_new_ending(1, 1000)
    assert not announced.is_new_ending(1, 1000)
    assert not announced.is_news_of_this_process("TaskFailed", 1, 1005, {"will_retry": False})
    assert not announced.is_news_of_this_process("TaskDeadLettered", 1, 1005, {})


def test_an_ending_between_a_look_and_its_announcement_is_not_announced_again() -> None:
    announced = Announced()
    assert announced.may_be_new_ending(1, 1000)
    assert announced.is_news_of_this_process("TaskCompleted", 1, 1002, {})
    assert not announced.is_new_ending(1, 1000)


def test_a_revived_task_may_end_here_after_it_has_ended_elsewhere() -> None:
    announced = Announced()
    assert announced.is_new_ending(1, 1000)
    assert announced.is_news_of_this_process("TaskDispatched", 1, 1100, {"attempt": 2})
    assert announced.is_news_of_this_process("TaskCompleted", 1, 1200, {})


def test_a_failure_that_is_retried_is_no_ending() -> None:
    announced = Announced()
    assert announced.is_news_of_this_process("TaskFailed", 1, 2000, RETRY)
    assert announced.is_new_ending(1, 1990), "the clock of the other node is behind"


def test_a_start_is_new_once_per_attempt() -> None:
    announced = Announced()
    assert announced.is_news_of_this_process("TaskDispatched", 1, 1000, {"attempt": 1})
    assert not announced.is_new_start(1, 1, 1001)
    assert announced.is_new_start(1, 2, 1002)
    assert not announced.is_new_start(1, 2, 1003)


def test_a_failure_of_another_process_is_new_after_a_later_attempt_failed_here() -> None:
    announced = Announced()
    assert announced.is_news_of_this_process("TaskDispatched", 1, 1000, {"attempt": 2})
    assert announced.is_news_of_this_process("TaskFailed", 1, 1001, RETRY, 2)
    assert announced.is_new_start(1, 1, 1002)
    assert announced.is_new_failure(1, 1, 1002)
    assert not announced.is_new_start(1, 2, 1003), "the start that was read did not replace it"


def test_starts_of_running_tasks_are_kept_and_the_rest_is_forgotten() -> None:
    announced = Announced()
    for id in (1, 2):
        announced.is_new_start(id, 1, 1000)
    announced.is_new_ending(3, 1000)
    announced.is_news_of_this_process("TaskCancelled", 4, 1000, {})
    announced.forget(1000 + KEPT_MS, frozenset())
    assert not announced.is_new_start(2, 1, 1000), "not yet"
    announced.forget(1001 + KEPT_MS, frozenset({1}))
    assert not announced.is_new_start(1, 1, 2000)
    assert announced.is_new_start(2, 1, 2000)
    assert announced.is_new_ending(3, 1000)
    assert announced.is_new_ending(4, 1000)


def test_a_failure_that_is_retried_is_new_once_whichever_way_it_comes() -> None:
    announced = Announced()
    assert announced.is_news_of_this_process("TaskFailed", 1, 1000, RETRY, 1)
    assert not announced.is_new_failure(1, 1, 1001)
    assert announced.is_new_failure(1, 2, 1002)
    assert not announced.is_news_of_this_process("TaskFailed", 1, 1003, RETRY, 2)
    announced.forget(1002 + KEPT_MS, frozenset())
    assert not announced.is_new_failure(1, 2, 1004 + KEPT_MS)
    announced.forget(1003 + KEPT_MS, frozenset())
    assert announced.is_new_failure(1, 2, 1004 + KEPT_MS)


LAST = {"will_retry": False}


def test_a_dead_letter_announced_here_is_not_new_when_its_error_is_read_after_it_was_revived() -> None:
    announced = Announced()
    assert announced.is_news_of_this_process("TaskFailed", 1, 1000, LAST, attempt=3)
    assert announced.is_news_of_this_process("TaskDeadLettered", 1, 1000, {}, attempt=3)
    assert not announced.is_new_failure(1, 3, 1001, is_last=True)
    assert announced.is_new_failure(1, 4, 1001, is_last=True)


def test_a_dead_letter_that_was_read_after_it_was_revived_is_not_announced_here_again() -> None:
    announced = Announced()
    assert announced.is_new_failure(1, 3, 1000, is_last=True)
    assert not announced.is_news_of_this_process("TaskFailed", 1, 1001, LAST, attempt=3)
    assert not announced.is_news_of_this_process("TaskDeadLettered", 1, 1001, {}, attempt=3)
    assert announced.is_news_of_this_process("TaskFailed", 1, 1002, LAST, attempt=4)
    assert announced.is_news_of_this_process("TaskDeadLettered", 1, 1002, {}, attempt=4)
    announced.forget(1000 + KEPT_MS + 1, frozenset())
    assert announced.is_new_failure(1, 3, 1000 + KEPT_MS + 1, is_last=True)
