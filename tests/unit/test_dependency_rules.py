"""Rules for jobs with dependencies that no verb of a ledger can break. The contract suite tests the others."""

from holdfast.core import commands as c
from holdfast.core.limits import TIME_US_MAX
from holdfast.core.model import NEVER, SYSTEM
from tests.unit.histories import CLIENT, History, code_of


def waiting() -> History:
    return History(depends_on=(3, 4))


def test_no_caller_can_set_the_time_reserved_for_waiting_jobs() -> None:
    assert NEVER > TIME_US_MAX
    assert not History(available_at=TIME_US_MAX).job.is_waiting


def test_only_the_system_unblocks_and_only_waiting_jobs() -> None:
    assert code_of(waiting(), c.Unblock, actor=CLIENT) == "forbidden"
    assert code_of(History(), c.Unblock, actor=SYSTEM) == "invalid_transition"
    assert code_of(waiting().do(c.Unblock, actor=SYSTEM), c.Unblock, actor=SYSTEM) == "invalid_transition"
    assert code_of(waiting().cancel(), c.Unblock, actor=SYSTEM) == "invalid_transition"
