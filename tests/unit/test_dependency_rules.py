"""The core's rules for jobs with dependencies."""

import msgspec
import pytest

from holdfast.core import commands as c
from holdfast.core.audit import check_history
from holdfast.core.decide import replay_command
from holdfast.core.dependencies import DependencyState, failure_command, unblock_command
from holdfast.core.limits import TIME_US_MAX
from holdfast.core.model import NEVER, SYSTEM, ReasonCode, Status
from holdfast.errors import NotClaimable
from tests.unit.histories import CLIENT, OPERATOR, SECOND, T0, History, code_of


def waiting(choice: str = "wait") -> History:
    return History(depends_on=(3, 4), on_dependency_failure=choice)


def test_no_caller_can_set_the_time_reserved_for_waiting_jobs() -> None:
    assert NEVER > TIME_US_MAX
    assert not History(available_at=TIME_US_MAX).job.is_waiting


def test_a_waiting_job_cannot_be_claimed() -> None:
    with pytest.raises(NotClaimable) as caught:
        waiting().claim()
    assert (caught.value.context["why"], caught.value.context["waits_for"]) == ("dependency", [3, 4])


@pytest.mark.parametrize(("delay", "later", "available"), [(0, 2, 2), (5, 2, 5), (5, 7, 7)])
def test_an_unblocked_job_is_available_now_or_at_its_requested_time(delay: int, later: int, available: int) -> None:
    history = History(depends_on=(3,), delay_us=delay * SECOND).wait(later).do(c.Unblock, actor=SYSTEM)
    assert history.job.available_at == T0 + available * SECOND
    assert history.wait(10).start().job.status is Status.RUNNING
    assert check_history(history.events, history.job) == []


def test_only_the_system_unblocks_and_only_waiting_jobs() -> None:
    assert code_of(waiting(), c.Unblock, actor=CLIENT) == "forbidden"
    assert code_of(History(), c.Unblock, actor=SYSTEM) == "invalid_transition"
    assert code_of(waiting().do(c.Unblock, actor=SYSTEM), c.Unblock, actor=SYSTEM) == "invalid_transition"
    assert code_of(waiting().cancel(), c.Unblock, actor=SYSTEM) == "invalid_transition"


def test_a_finished_job_waits_for_no_job() -> None:
    job = waiting().cancel().job
    assert (job.is_waiting, job.waits_for, job.depends_on) == (False, (), (3, 4))


@pytest.mark.parametrize("status", [Status.FAILED, Status.CANCELLED, Status.DEAD_LETTERED])
def test_on_dependency_failure_selects_the_command_for_a_dependent(status: Status) -> None:
    ended = DependencyState(3, status, 7)
    assert failure_command(waiting().job, ended, "r") is None
    cancel = failure_command(waiting("cancel").job, ended, "r")
    assert isinstance(cancel, c.Cancel)
    assert (cancel.actor, cancel.request_id, cancel.cause, cancel.reason) == (SYSTEM, "r", "3-7", f"dependency 3 {status.value}")
    letter = failure_command(waiting("dead_letter").job, ended, "r")
    assert isinstance(letter, c.DeadLetter)
    assert (letter.cause, letter.reason_code) == ("3-7", ReasonCode.DEPENDENCY_UNAVAILABLE)
    assert msgspec.json.decode(letter.error or b"") == {"message": f"dependency 3 {status.value}"}


def test_the_cause_is_in_the_event() -> None:
    history = waiting()
    history.do(c.Unblock, actor=SYSTEM, cause=unblock_command(7, DependencyState(4, Status.SUCCEEDED, 5), None).cause)
    assert history.events[-1].cause == "4-5"


def test_a_replay_has_the_dependencies_of_its_original() -> None:
    replay = replay_command(waiting("cancel").cancel().job, c.Replay(actor=OPERATOR, job_id=7))
    assert isinstance(replay, c.EnqueueLinked)
    assert replay.depends_on == (3, 4)
    assert b'"depends_on":[3,4],"on_dependency_failure":"cancel"' in replay.payload
