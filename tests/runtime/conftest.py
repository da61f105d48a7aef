"""What tests of courtesy work with: a machine that they play, and handlers that end when they are told to."""

from __future__ import annotations

import pytest

from taskmill.testing import ManualClock
from tests.runtime.machine_world import Gate, PlayedMachine


@pytest.fixture
def machine() -> PlayedMachine:
    return PlayedMachine()


@pytest.fixture
def clock(manual_clock: ManualClock) -> ManualClock:
    return manual_clock


@pytest.fixture
def gate() -> Gate:
    return Gate()
