"""For tests of programs that use Holdfast."""

from typing import TYPE_CHECKING, Any

from holdfast.testing.checking import check_all
from holdfast.testing.clock import ManualClock
from holdfast.testing.entropy import NoJitter

if TYPE_CHECKING:
    from holdfast.testing.contexts import FakeAsyncContext, FakeContext
    from holdfast.testing.draining import Drained, Run, drain

__all__ = ["Drained", "FakeAsyncContext", "FakeContext", "ManualClock", "NoJitter", "Run", "check_all", "drain"]

_LATE = dict.fromkeys(("Drained", "Run", "drain"), "draining") | dict.fromkeys(("FakeContext", "FakeAsyncContext"), "contexts")


def __getattr__(name: str) -> Any:
    """A test that only wants a clock needs no worker."""
    if name not in _LATE:
        raise AttributeError(f"module 'holdfast.testing' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"holdfast.testing.{_LATE[name]}"), name)
