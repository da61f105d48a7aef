"""Test helpers for programs that use taskmill: a clock that the test moves, and a pytest plugin."""

from taskmill.testing.clock import ManualClock
from taskmill.testing.scheduler import ObservedScheduler

__all__ = ["ManualClock", "ObservedScheduler"]
