"""Helpers for tests of programs that use Holdfast."""

from typing import TYPE_CHECKING

from holdfast.core.audit import Violation
from holdfast.core.limits import PAGE_MAX
from holdfast.ledger import Ledger
from holdfast.testing.clock import ManualClock, NoJitter

if TYPE_CHECKING:
    from holdfast.testing.contexts import FakeAsyncContext, FakeContext
    from holdfast.testing.inline_worker import Drained, Run, drain


__all__ = ["Drained", "FakeAsyncContext", "FakeContext", "ManualClock", "NoJitter", "Run", "check_all", "drain"]

_MODULES = dict.fromkeys(("Drained", "Run", "drain"), "inline_worker") | dict.fromkeys(
    ("FakeContext", "FakeAsyncContext"), "contexts"
)


if not TYPE_CHECKING:  # type checkers see the imports above, and report every other name

    def __getattr__(name: str) -> object:
        """Import on first use: a test that only needs a clock does not load the worker."""
        if name not in _MODULES:
            raise AttributeError(f"module 'holdfast.testing' has no attribute {name!r}")
        from importlib import import_module

        return getattr(import_module(f"holdfast.testing.{_MODULES[name]}"), name)


def check_all(ledger: Ledger) -> list[Violation]:
    """Run `ledger.check` on every job. Return all violations; an empty list means that the ledger is consistent."""
    found: list[Violation] = []
    after = 0
    while page := ledger.list(after=after, limit=PAGE_MAX):
        for job in page:
            found += ledger.check(job.id)
        after = page[-1].id
    return found
