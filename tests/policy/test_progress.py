"""Laws of progress: a byte rate is measured over samples of a sensible length, the time left follows from it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from taskmill.model.progress import ByteRate, ProgressReport
from taskmill.policy.progress import advanced, measured_rate
from tests.repetition import often

INTERVAL = 0.5
"""Seconds between two readings of a task's latest report."""


def measured(reports: Sequence[tuple[float, int]], total: int | None = None) -> Iterator[tuple[float, float | None]]:
    """Yield ``(at, rate)`` for each report ``(at, done)``."""
    rate: ByteRate | None = None
    for at, done in reports:
        rate = measured_rate(rate, ProgressReport(done_bytes=done, total_bytes=total), at)
        assert rate is not None
        yield at, rate.rate


def read(reports: Sequence[tuple[float, int]], phase: float, together: bool) -> list[tuple[float, int]]:
    """Return the reports as the scheduler reads them: the latest one, at most every half second.

    A report is read at once, if the last reading was long enough ago, or ``together`` with those of other tasks.
    """
    found: list[tuple[float, int]] = []
    place, at = 0, float("-inf")
    while place < len(reports):
        came_at = reports[place][0]
        at = phase + -((phase - came_at) // INTERVAL) * INTERVAL if together else max(came_at, at + INTERVAL)
        while place < len(reports) and reports[place][0] <= at:
            place += 1
        found.append((at, reports[max(place - 1, 0)][1]))
    return found


@settings(max_examples=often(200))
@given(
    speed=st.integers(1_000, 10**9),
    first_at=st.sampled_from([0.0, 0.001, 3.0]),
    first=st.integers(1, 10**12),
    gaps=st.one_of(
        st.lists(st.floats(0.001, 5), min_size=10, max_size=60),
        st.floats(0.02, 5).map(lambda gap: [gap] * (int(10 / gap) + 2)),
    ),
    phase=st.floats(0, INTERVAL),
    together=st.booleans(),
)
def test_a_steady_speed_is_measured_whatever_the_chunks_and_the_first_jump_are(
    speed: int, first_at: float, first: int, gaps: list[float], phase: float, together: bool
) -> None:
    reports, at = [(0.0, 0), (first_at, first)], first_at
    for gap in gaps:
        at += gap
        reports.append((at, first + round(speed * (at - first_at))))
    for at, rate in measured(read(reports, phase, together), total=10**13):
        if at >= first_at + 6 and max(gaps) <= 1:
            assert rate is not None
        if rate is not None:
            assert rate <= 3 * speed
            if at >= first_at + 6:
                assert 0.75 * speed <= rate <= 1.25 * speed


@given(st.lists(st.tuples(st.integers(0, 10**9), st.floats(1, 100)), min_size=1, max_size=20))
def test_the_rate_lies_between_the_slowest_and_the_fastest_step(steps: list[tuple[int, float]]) -> None:
    done, at = 1, 0.0
    reports = [(at, done)]
    for step, elapsed in steps:
        done, at = done + step, at + elapsed
        reports.append((at, done))
    speeds: list[float] = []
    for (step, elapsed), (_, rate) in zip(steps, list(measured(reports))[1:], strict=True):
        if step or speeds:
            speeds.append(step / elapsed)
        if not speeds:
            assert rate is None, "nothing has moved yet"
            continue
        assert rate is not None
        assert min(speeds) * 0.999 <= rate <= max(speeds) * 1.001


def test_what_an_earlier_attempt_has_sent_is_not_throughput() -> None:
    sent = 4 * 10**8
    counted_one_by_one = [(0.0, 0), (0.125, 4 * 10**6), (0.625, sent)]
    rates = measured([*counted_one_by_one, (1.125, sent + 500), (1.625, sent + 1000)], total=10**9)
    assert [rate for _, rate in rates] == [None, None, None, 1000, 1000]


def test_a_report_of_the_total_is_no_starting_point() -> None:
    rates = measured([(1.0, 0), (3.0, 1000), (5.0, 2000)], total=5000)
    assert [rate for _, rate in rates] == [None, None, 500]


def test_a_last_report_soon_after_another_leaves_the_rate() -> None:
    rates = measured([(0.0, 1000), (1.0, 2000), (1.001, 2100)])
    assert [rate for _, rate in rates] == [None, 1000, 1000]


def test_a_new_count_keeps_the_rate_until_it_is_measured() -> None:
    rate: ByteRate | None = None
    found: list[float | None] = []
    for at, done, total in [(0, 1, 10**4), (1, 1001, 10**4), (2, 9 * 10**5, 10**6), (3, 9 * 10**5 + 1000, 10**6)]:
        rate = measured_rate(rate, ProgressReport(done_bytes=done, total_bytes=total), at)
        assert rate is not None
        found.append(rate.rate)
    assert found == [None, 1000, 1000, 1000]


def test_a_report_without_bytes_leaves_the_measurement() -> None:
    before = measured_rate(None, ProgressReport(done_bytes=1000), 0.0)
    assert measured_rate(before, ProgressReport(fraction=0.5), 1.0) is before
    assert measured_rate(None, ProgressReport(fraction=0.5), 1.0) is None


def test_the_time_left_is_what_is_left_at_that_rate() -> None:
    rate = ByteRate(0.0, 2.0, 1000, 5000, rate=500.0, seconds=2.0)
    progress = advanced(None, ProgressReport(done_bytes=1000, total_bytes=5000, fraction=0.2), rate)
    assert (progress.rate, progress.eta_ms) == (500.0, 8000)


def test_a_message_stays_until_it_is_replaced() -> None:
    first = advanced(None, ProgressReport(fraction=0.1, message="scanning"), None)
    second = advanced(first, ProgressReport(fraction=0.2), None)
    assert second.message == "scanning"
