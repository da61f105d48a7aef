"""Laws of progress: rates are smoothed, the time left follows from them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from taskmill.model.progress import ProgressReport, StoredProgress
from taskmill.policy.progress import advanced


@given(st.lists(st.tuples(st.integers(0, 10**9), st.floats(0.01, 100)), min_size=1, max_size=20))
def test_the_rate_lies_between_the_slowest_and_the_fastest_step(steps: list[tuple[int, float]]) -> None:
    progress: StoredProgress | None = None
    done = 0
    momentary: list[float] = []
    for step, elapsed in steps:
        done += step
        progress = advanced(progress, ProgressReport(done_bytes=done, total_bytes=done + 1), elapsed)
        if step or momentary:
            momentary.append(step / elapsed)
        if not momentary:
            assert progress.rate is None, "nothing has moved yet"
            continue
        assert progress.rate is not None
        assert min(momentary) * 0.999 <= progress.rate <= max(momentary) * 1.001


def test_a_report_of_the_total_shows_no_rate() -> None:
    told = advanced(None, ProgressReport(fraction=0.0, done_bytes=0, total_bytes=5000), 1.0)
    assert (told.rate, told.eta_ms) == (None, None)
    assert advanced(told, ProgressReport(done_bytes=1000, total_bytes=5000), 2.0).rate == 500.0


def test_the_time_left_is_what_is_left_at_that_rate() -> None:
    progress = advanced(None, ProgressReport(done_bytes=1000, total_bytes=5000, fraction=0.2), 2.0)
    assert (progress.rate, progress.eta_ms) == (500.0, 8000)


def test_a_message_stays_until_it_is_replaced() -> None:
    first = advanced(None, ProgressReport(fraction=0.1, message="scanning"), 1)
    second = advanced(first, ProgressReport(fraction=0.2), 1)
    assert second.message == "scanning"
