"""Help for testing programs that use taskmill: a clock moved by hand, and a pytest plugin."""

from taskmill.testing.clock import ManualClock
from taskmill.testing.scheduler import ObservedScheduler

__all__ = ["ManualClock", "ObservedScheduler"]
