"""Fixtures for backpressure: a machine that the test controls, and handlers that end on its signal."""

from __future__ import annotations

import pytest

from taskmill.testing import ManualClock
from tests.runtime.backpressure.machine import Gate, PlayedMachine


@pytest.fixture
def machine() -> PlayedMachine:
    return PlayedMachine()


@pytest.fixture
def clock(manual_clock: ManualClock) -> ManualClock:
    return manual_clock


@pytest.fixture
def gate() -> Gate:
    return Gate()
