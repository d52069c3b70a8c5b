"""For tests of programs that use Holdfast."""

from holdfast.testing.clock import ManualClock

__all__ = ["ManualClock"]
