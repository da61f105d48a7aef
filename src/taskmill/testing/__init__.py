"""Help for testing programs that use taskmill: a clock moved by hand, and a pytest plugin."""

from taskmill.testing.clock import ManualClock

__all__ = ["ManualClock"]
