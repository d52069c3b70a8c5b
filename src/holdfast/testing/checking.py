"""Looking at a whole ledger after a test."""

from holdfast.core.audit import Violation
from holdfast.core.limits import PAGE_MAX
from holdfast.ledger import Ledger


def check_all(ledger: Ledger) -> list[Violation]:
    """Everything wrong with any job's history and row, as `ledger.check` says it of each: an empty list."""
    found: list[Violation] = []
    after = 0
    while page := ledger.list(after=after, limit=PAGE_MAX):
        for job in page:
            found += ledger.check(job.id)
        after = page[-1].id
    return found
