"""The monotonic clock counts while a machine sleeps, on every system that has such a clock."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest

from taskmill.core.clock import SystemClock, steady_clock


def system(**clocks: int) -> SimpleNamespace:
    """Return a module ``time`` whose clocks return their own number; Python's own clock returns -1."""
    return SimpleNamespace(monotonic=lambda: -1.0, clock_gettime=float, **clocks)


LINUX = system(CLOCK_MONOTONIC=1, CLOCK_MONOTONIC_RAW=4, CLOCK_BOOTTIME=7)
MACOS = system(CLOCK_MONOTONIC=6, CLOCK_MONOTONIC_RAW=4, CLOCK_UPTIME_RAW=8)
WINDOWS = SimpleNamespace(monotonic=lambda: -1.0)


@pytest.mark.parametrize(
    ("platform", "module", "clock"),
    [
        pytest.param("linux", LINUX, 7, id="linux-boottime"),
        pytest.param("darwin", MACOS, 4, id="macos-continuous"),
        pytest.param("win32", WINDOWS, -1, id="windows-own"),
        pytest.param("netbsd10", system(CLOCK_MONOTONIC=3), -1, id="none"),
    ],
)
def test_the_steady_clock_is_the_one_that_counts_sleep(platform: str, module: SimpleNamespace, clock: int) -> None:
    assert steady_clock(platform, module)() == clock


def test_this_system_has_the_clock_that_is_chosen_for_it() -> None:
    before = time.monotonic()
    assert SystemClock.monotonic() >= before, "a clock that counts sleep is never behind one that does not"
