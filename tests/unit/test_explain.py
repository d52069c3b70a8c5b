"""Explanations of a job and its facts. The contract suite tests every situation on a ledger. These are the other cases."""

from typing import Any

import msgspec
import pytest

from holdfast.core import commands as c
from holdfast.core.explain import Explanation, JobFacts, Situation, explain
from holdfast.core.explain.formatting import format_clock, format_error_json, format_when, unpause
from holdfast.core.explain.model import AHEAD_MAX, FlowFacts, LimitState, LinkedJob, QueuedFacts, QueuePause, SeenWorker
from holdfast.core.explain.queued import explain_waiting
from holdfast.core.model import (
    NEVER,
    SYSTEM,
    UNDO_KIND,
    Draw,
    EventType,
    FailureStage,
    Flow,
    Policy,
    ReasonCode,
    StallReason,
    Status,
)
from holdfast.core.payloads import BeatPayload
from holdfast.core.text import format_duration
from tests.unit.histories import OPERATOR, SECOND, STEP, T0, WINDOW, History

HERE = SeenWorker("w-1", T0)


def signed(history: History, what: str) -> History:
    """The history with a policy that requires signatures, and all events signed."""
    policy = msgspec.structs.replace(history.policy, signed=what)
    history.job = msgspec.structs.replace(history.job, policy=policy)
    return history


def of(history: History, **facts: Any) -> Explanation:
    given: dict[str, Any] = {"policy": history.policy, "since": T0, "workers": (HERE,), "sweeper": "w-9"} | facts
    return explain(history.job, JobFacts(**given), history.now)


def commands(found: Explanation) -> list[str]:
    return [remedy.command for remedy in found.commands]


def test_a_lock_on_its_row_is_explained():
    found = of(History().claim().start(), locked_by="process 7 (psql), idle in transaction for 9 s")
    text = "Its row is locked by process 7 (psql), idle in transaction for 9 s: nothing can be written to it before"
    assert text in found.text


@pytest.mark.parametrize("facts", [{}, {"ahead": 2}, {"workers": ()}, {"pause": QueuePause(T0), "ahead": 1}])
def test_what_keeps_a_job_waiting_is_said_as_in_its_explanation(facts: dict[str, Any]):
    history = History()
    waiting = explain_waiting(history.job, QueuedFacts(**{"workers": (HERE,)} | facts), history.now)
    assert waiting == of(history, **facts).why_not_running


# Texts


@pytest.mark.parametrize(
    ("us", "words"),
    [
        (0, "0 s"),
        (300_000, "0.3 s"),
        (9_000_000, "9 s"),
        (12_900_000, "12 s"),
        (119 * SECOND, "119 s"),
        (180 * SECOND, "3 min"),
        (7_200 * SECOND, "2 h"),
        (3 * 86_400 * SECOND, "3 d"),
    ],
)
def test_durations_have_a_fitting_unit(us: int, words: str):
    assert format_duration(us) == words


def test_times_have_their_date_unless_it_is_today():
    assert format_when(T0 + 12 * SECOND, T0) == "in 12 s (00:00:12Z)"
    assert format_when(T0, T0 + 12 * SECOND) == "12 s ago (00:00:00Z)"
    assert format_clock(T0 - SECOND, T0) == "2025-12-31 23:59:59Z"
    assert format_clock(10**18, T0) == "9999-12-31 23:59:59Z"


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (b'{"type":"ValueError","message":"no\\nmore"}', "ValueError: no"),
        (b'{"message":"no"}', "no"),
        (b'"plain"', "plain"),
        (b'{"code":3}', "{'code': 3}"),
        (b'"' + b"x" * 300 + b'"', "x" * 200 + "…"),
    ],
)
def test_an_error_is_shown_in_one_line(error: bytes, words: str):
    assert format_error_json(error) == words


# Queued, with flow control


def flowing(facts: FlowFacts | None = None, flow: Flow | None = None, **more: Any) -> Explanation:
    history = History(flow=flow or Flow(partition="acme"))
    return of(history, flow=facts or FlowFacts(), **more)


def test_a_limit_that_is_too_small_comes_first():
    used_up = LimitState(name="a", limit="a", units=1, used=3, concurrent=3)
    small = LimitState(name="b for x", limit="b", units=5, used=0, concurrent=7, tokens_max=3)
    found = flowing(FlowFacts(limits=(used_up, small)))
    assert found.situation is Situation.LIMIT_TOO_SMALL
    assert "It can never start: it draws 5 units of the limit b for x, which has 3 at most." in found.text
    assert "Besides: the limit a is used up: 3 of 3 are in use." in found.text
    assert commands(found)[:2] == ["holdfast limit get b", "holdfast limit get a"]


def test_a_limit_that_is_stopped_is_not_too_small():
    stopped = LimitState(name="a for x", limit="a", units=2, used=1, concurrent=0, tokens_max=3)
    found = flowing(FlowFacts(limits=(stopped,)))
    assert found.situation is Situation.LIMIT_USED_UP
    assert "The limit a for x is stopped: it has concurrent 0." in found.text


def test_a_limit_that_is_used_up_is_shared_in_turn():
    used_up = FlowFacts(limits=(LimitState(name="a", limit="a", units=1, used=3, concurrent=3),))
    assert "3 of 3 are in use. The partitions of a queue take turns." in flowing(used_up).text
    plain = Flow(limits=(Draw("a"),))
    assert "turns" not in flowing(used_up, plain).text
    assert "3 of 3 are in use. It takes turns with other jobs of its priority." in flowing(used_up, plain, takes_turns=True).text
    assert "turns" not in flowing(used_up, plain, takes_turns=True, is_asked_to_claim=True).text


def test_a_limit_with_room_is_no_obstacle():
    room = LimitState(name="a", limit="a", units=1, used=2, concurrent=3, tokens_max=1)
    found = flowing(FlowFacts(limits=(room,)))
    assert found.situation is Situation.READY
    assert "is the next of its partition acme" in found.text
    assert "is the next of its kind with its limits and labels" in flowing(flow=Flow(requires=("x",)), workers=(GPU,)).text


GPU = SeenWorker("w-2", T0, labels=frozenset({"gpu", "x"}))


def test_the_worker_of_a_job_may_be_there():
    flow = Flow(requires=("worker:w-1",))
    found = flowing(flow=flow)
    assert found.situation is Situation.READY
    assert "It may be claimed by the worker w-1 only, and is the next" in found.text
    assert "It may be claimed by the worker w-1 only, but 3 jobs like it come first." in flowing(flow=flow, ahead=3).text
    assert "It may be claimed by the worker w-1 only;" in flowing(flow=flow, is_asked_to_claim=True, workers=(HERE,)).text
    elsewhere = flowing(flow=flow, workers=(SeenWorker("w-1", T0, frozenset({"other"})), GPU))
    assert elsewhere.situation is Situation.NO_WORKER
    lacking = flowing(flow=Flow(requires=("worker:w-1", "gpu")), workers=(HERE, GPU))
    assert lacking.situation is Situation.NO_WORKER_WITH_LABELS
    assert "It requires the label gpu, which no running worker that serves k in q has." in lacking.text


# Queued


def test_only_some_of_many_dependencies_are_named():
    found = of(History(), unmet=tuple(LinkedJob(n, Status.QUEUED, "default") for n in range(10, 17)))
    assert "It waits for 7 jobs: 10 (queued), 11 (queued), 12 (queued), 13 (queued), 14 (queued) and 2 more." in found.text


@pytest.mark.parametrize(("choice", "ends"), [("wait", []), ("cancel", ["cancelled"]), ("dead_letter", ["dead-lettered"])])
def test_the_next_step_of_a_job_with_a_failed_dependency_is_explained(choice: str, ends: list[str]):
    history = History(available_at=NEVER)
    history.job = msgspec.structs.replace(history.job, on_dependency_failure=choice)
    found = of(history, unmet=(LinkedJob(3, Status.QUEUED, "default"),))
    assert [step.what for step in found.next[1:]] == [f"it is {end} if one of them ends without success" for end in ends]


def test_a_queue_may_begin_with_a_dash():
    assert unpause("-q").command == "holdfast queue unpause -- -q"
    assert unpause("q -").command == "holdfast queue unpause 'q -'"


def test_a_claimer_is_not_warned_that_no_worker_is_signed_in():
    found = of(History(), workers=(), ahead=3, is_asked_to_claim=True)
    assert (found.situation, found.next[0].by) == (Situation.READY, "the first worker to claim it")
    assert "It may be claimed; it has been ready for" in found.text and "worker" not in found.text
    assert [remedy.command for remedy in found.commands] == ["holdfast job cancel 7"]
    later = of(History(delay_us=60 * SECOND), workers=(), is_asked_to_claim=True)
    assert (later.situation, "Besides" in later.text) == (Situation.SCHEDULED, False)


def test_further_obstacles_are_explained():
    found = of(History(delay_us=60 * SECOND), pause=QueuePause(T0, "ada", "reindexing"), workers=())
    assert found.situation is Situation.QUEUE_PAUSED
    assert "Besides: it was enqueued for later, and may be claimed in 60 s (00:01:00Z)." in found.text
    assert "Besides: no worker serves it" in found.text
    assert found.why_not_running is not None and found.why_not_running.words in found.text


def test_an_active_agent_may_take_the_job():
    history = History().wait(60)
    found = of(history, workers=(), agent_at=history.now - 60 * SECOND)
    assert (found.situation, found.next[0].by) == ("no_worker", "an agent, or a worker that serves k")
    assert "Agents are active, the last of them 60 s ago" in found.text
    assert found.commands[0].command == "holdfast task start 7 --agent NAME"
    assert "task start" not in of(history, workers=(), agent_at=history.now - 3_601 * SECOND).commands[0].command


def test_the_last_worker_is_named():
    history = History().wait(60)
    assert "No worker serves k now. w-1, which served it, fell silent 60 s ago (00:00:00Z)." in of(history).text
    other = SeenWorker("w-2", history.now, kinds=frozenset({"other"}))
    assert "the workers that are signed in do not serve k in q" in of(history, workers=(other,)).text
    assert "none that serves k in q is signed in to this ledger" in of(history, workers=()).text


def test_the_queue_in_which_a_kind_is_served_is_named():
    history = History().wait(60)
    there = SeenWorker("w-2", history.now, queues=frozenset({"fetch", "index"}), kinds=frozenset({"k"}))
    found = of(history, workers=(there,))
    assert "No worker serves k in q. It is served in fetch, index." in found.text
    assert found.commands[0].command == "holdfast job move 7 --queue fetch"
    gone = SeenWorker("w-3", T0, queues=frozenset({"fetch"}), kinds=frozenset({"k"}))
    silent = SeenWorker("w-4", history.now, queues=frozenset({"fetch"}))
    assert "job move" not in str(of(history, workers=(gone, silent)).commands)


def test_the_queue_that_a_handler_declares_is_named_while_no_worker_serves_its_kind():
    history = History().wait(60)
    found = of(history, workers=(), declared_queue="web")
    assert "none that serves k in q is signed in to this ledger. Its handler is declared for web." in found.text
    assert found.commands[0].command == "holdfast job move 7 --queue web"
    assert found.commands[0].does.startswith("puts it into web, where its kind is served")
    assert "declared" not in of(history, workers=(), declared_queue="q").text
    there = SeenWorker("w-2", history.now, queues=frozenset({"fetch"}), kinds=frozenset({"k"}))
    assert "declared" not in of(history, workers=(there,), declared_queue="web").text
    there = SeenWorker("w-2", history.now, queues=frozenset({"fetch", "web"}), kinds=frozenset({"k"}))
    found = of(history, workers=(there,), declared_queue="web")
    assert "It is served in web, fetch." in found.text
    assert found.commands[0].command == "holdfast job move 7 --queue web"


def test_jobs_ahead_are_counted_up_to_a_limit():
    found = of(History(), ahead=AHEAD_MAX, workers=(HERE, SeenWorker("w-2", T0)))
    assert "1,000 jobs or more of its queue come first" in found.text
    assert found.next[0].by == "the first of w-1, w-2 with free capacity"


@pytest.mark.parametrize(
    ("history", "words"),
    [
        (History().start().do(c.Release), "w-1 released attempt 1; it does not count."),
        (History().start().fail(), "Attempt 1, by w-1, failed: x."),
        (History().start().do(c.Stall, error=b'"worn"').sweep(), "Attempt 1, by w-1, failed: worn."),
        (History().start().stall().sweep(), "Attempt 1, by w-1, ended: its holder could not go on (WORKER_ERROR)."),
        (History().start().wait(31).sweep(), "Attempt 1, by w-1, ended: its holder fell silent (NO_HEARTBEAT)."),
    ],
)
def test_the_outcome_of_the_previous_attempt_is_explained(history: History, words: str):
    assert words in of(history).text


def test_an_undo_job_names_its_original():
    history = History(kind=UNDO_KIND)
    history.job = msgspec.structs.replace(history.job, args=b'{"job_id":3,"steps":[]}')
    assert "It undoes job 3." in of(history).text


# Held


def test_a_request_for_assistance_is_explained():
    history = History().start().beat(assist_requested=True)
    found = of(history)
    assert "w-1 asks for assistance." in found.text
    assert commands(found)[:2] == ["holdfast job assist 7", "holdfast job cancel 7"]
    assert "holdfast job assist 7" not in commands(of(history.do(c.Assist, actor=OPERATOR, on=True)))


@pytest.mark.parametrize(
    ("history", "what"),
    [
        (History().start(), "without another beat it is stalled, and requeued"),
        (History(WINDOW).start(), "without another beat it is stalled, and requeued after its resume window"),
        (History(Policy(attempts_max=1)).start(), "without another beat it is stalled, and out of attempts"),
        (History(Policy(progress_timeout_ms=5_000)).start(), "without progress it is stalled, and requeued"),
        (History(Policy(cancel_grace_ms=90_000)).start().cancel(), "without another beat it is stalled, and cancelled"),
    ],
)
def test_the_consequence_of_silence_is_explained(history: History, what: str):
    assert of(history).next[-1].what == what


def test_lack_of_progress_is_reported_after_half_of_its_limit():
    policy = Policy(progress_timeout_ms=20_000)
    assert of(History(policy).start().wait(10)).situation is Situation.RUNNING
    found = of(History(policy).start().wait(9).beat().wait(5))
    assert found.situation is Situation.NO_PROGRESS
    assert "have not changed for 14 s. Without progress it stalls in 6 s (00:00:20Z)." in found.text


def test_a_signed_job_needs_a_server_key():
    history = signed(History().start(), "liveness")
    assert "no sweep can stall it" in of(history, server_key=False).text
    assert "no sweep can stall it" not in of(history).text
    history.wait(31)
    assert of(history, server_key=False).situation is Situation.NO_SERVER_KEY
    assert "Unless the sweeper, w-9, has a server key" in of(history).text


def test_a_missing_signature_of_an_operator_is_named():
    by_key = "; needs an operator's key, by --key or HOLDFAST_KEYS"
    assert of(signed(History().start(), "all")).commands[0].does.endswith(by_key)
    assert of(signed(History().start().wait(31), "all")).commands[-1].does.endswith(by_key)
    assert not any(remedy.does.endswith(by_key) for remedy in of(signed(History().start(), "liveness")).commands)
    dead = signed(History(Policy(attempts_max=1)).start().fail(), "all")
    assert [remedy.does.endswith(by_key) for remedy in of(dead).commands] == [False, False, True]


# Stalled


def test_a_stalled_claimed_job_with_beats_stays_in_its_resume_window():
    """Only its holder can start it: the system does not resume an attempt that never started."""
    history = History(WINDOW).claim().stall().wait(5)
    history.do(c.Heartbeat, beat=BeatPayload())
    assert of(history).situation is Situation.RESUME_WINDOW


def test_the_error_of_a_stalled_job_is_explained():
    found = of(History(WINDOW).start().do(c.Stall, error=b'"worn"', reason=StallReason.WORKER_ERROR))
    assert "It stalled 0 s ago (00:00:00Z) while w-1 held it: its holder could not go on (WORKER_ERROR)." in found.text
    assert "Its last error: worn." in found.text
    assert "w-1 may still return and continue, for another 60 s (until 00:01:00Z)." in found.text


@pytest.mark.parametrize(("choice", "what"), [("dead_letter", "it is dead-lettered"), ("fail", "it fails")])
def test_a_stalled_job_without_attempts_left_ends(choice: str, what: str):
    found = of(History(Policy(resume_window_ms=60_000, attempts_max=1, on_exhausted=choice)).start().stall())
    assert (found.situation, found.next[0].what) == (Situation.EXHAUSTED, what)
    assert "It has used 1 of 1 attempts" in found.text


def test_a_stalled_job_that_is_being_cancelled_ends_with_the_first_of_its_limits():
    policy = Policy(resume_window_ms=60_000, cancel_grace_ms=20_000)
    history = History(policy).start().cancel(reason="enough").stall()
    found = of(history)
    assert found.situation is Situation.CANCEL_DUE
    assert found.next[0].at is not None and found.next[0].at.timestamp() * SECOND == T0 + 20 * SECOND
    assert of(history.wait(21)).situation is Situation.CANCEL_DUE
    assert of(history, sweeper=None).situation is Situation.NO_SWEEPER


@pytest.mark.parametrize(
    ("what", "expected"), [("all", Situation.NO_SERVER_KEY), ("liveness", Situation.REQUEUE_DUE), ("none", Situation.REQUEUE_DUE)]
)
def test_a_requeue_is_signed_only_if_the_policy_is_all(what: str, expected: Situation):
    assert of(signed(History(WINDOW).start().stall().wait(61), what), server_key=False).situation is expected


def test_a_resume_needs_the_server_key_under_a_liveness_policy():
    history = signed(History(WINDOW).start().stall().wait(1).beat().wait(1), "liveness")
    assert of(history).situation is Situation.RESUME_DUE
    assert of(history, server_key=False).situation is Situation.NO_SERVER_KEY


# Ended


def failing(history: History) -> History:
    return history.fail(retryable=False)


def test_a_dead_letter_with_wrong_arguments_is_to_be_discarded_first():
    wrong = History().do(c.DeadLetter, actor=OPERATOR, reason_code=ReasonCode.PARSE_ERROR, failure_stage=FailureStage.INPUT)
    found = of(wrong)
    assert "A replay has the same arguments: it fails again unless the handler now accepts them." in found.text
    assert commands(found) == ["holdfast dlq discard 7", "holdfast dlq get 7", "holdfast dlq replay 7"]


def test_a_discarded_letter_is_not_to_be_discarded_again():
    dead = History(Policy(attempts_max=1)).start().fail()
    assert commands(of(dead)) == ["holdfast dlq replay 7", "holdfast dlq get 7", "holdfast dlq discard 7"]
    dead.do(c.Annotate, actor=OPERATOR, note=EventType.DISCARDED)
    found = of(dead)
    assert (found.situation, commands(found)[-1]) == (Situation.EXHAUSTED, "holdfast dlq get 7")
    assert "no further action is needed" in found.text


def test_a_job_with_a_finished_replay_is_replayed_only_with_again():
    failed, dead = failing(History().start()), History(Policy(attempts_max=1)).start().fail()
    found = of(failed, replays=(LinkedJob(8, Status.SUCCEEDED, "default"), LinkedJob(9, Status.CANCELLED, "default")))
    assert commands(found) == ["holdfast explain 9", "holdfast job replay 7 --again"]
    assert commands(of(dead, replays=(LinkedJob(8, Status.DEAD_LETTERED, "default"),)))[1] == "holdfast dlq replay 7 --again"


def owing(steps: int = 1) -> History:
    history = History().start()
    for _ in range(steps):
        history.beat(undo=STEP)
    return failing(history)


def test_undo_steps_are_explained_until_they_are_done():
    found = of(owing(2), sweeper=None)
    assert found.situation is Situation.COMPENSATION_OWED
    assert "It has 2 undo steps left to run, and there is no undo job yet." in found.text
    assert commands(found) == ["holdfast sweep", "holdfast job replay 7"]
    working = of(owing(), undo=LinkedJob(8, Status.RUNNING, "default"))
    assert "It has 1 undo step left to run; its undo job 8 is running." in working.text
    done = owing().do(c.Annotate, actor=SYSTEM, note=EventType.COMPENSATED)
    assert of(done).situation is Situation.FAILED
    assert "Its undo steps have run." in of(done).text
    assert of(done, replays=(LinkedJob(9, Status.QUEUED, "default"),)).situation is Situation.REPLAYED


def test_durations_are_not_negative_after_the_clock_is_set_back():
    history = History().wait(60).start()
    history.now = T0
    found = of(history)
    assert found.last_proof_of_life is not None and found.last_proof_of_life.age_ms == 0


# Announced steps


@pytest.mark.parametrize(
    "history",
    [
        History().claim(),
        History().start().wait(3).beat(),
        History(WINDOW).start(),
        History(Policy(attempts_max=1)).start(),
        History(Policy(progress_timeout_ms=5_000)).start().wait(1).beat(),
        History().start().cancel(),
        History(Policy(heartbeat_interval_ms=60_000)).start().cancel(),
        History(WINDOW).start().stall(),
        History(WINDOW).start().wait(2).cancel().stall(),
        History(msgspec.structs.replace(WINDOW, attempts_max=1)).start().stall(),
        History(WINDOW).claim().stall().wait(50).do(c.Heartbeat, beat=BeatPayload()),
    ],
)
def test_a_sweep_acts_at_the_announced_time(history: History):
    due = of(history).next[-1]
    assert due.at is not None and due.by == "the sweeper, w-9"
    at, before = round(due.at.timestamp() * SECOND), len(history.events)
    history.now = at - 1
    assert len(history.sweep().events) == before
    history.now = at + 1
    assert len(history.sweep().events) > before
    assert history.events[before].type.value in due.what or history.job.status.value.replace("_", "-") in due.what


def facts_with(**facts: Any) -> JobFacts:
    return JobFacts(policy=Policy(), since=T0, **facts)


def _some(queue: str) -> bool:
    return queue in ("default", "mail")


def test_the_facts_for_a_reader_of_some_queues_leave_out_replays_undo_jobs_and_workers_in_others() -> None:
    facts = facts_with(
        replays=(LinkedJob(8, Status.FAILED, "secret"), LinkedJob(9, Status.FAILED, "mail")),
        undo=LinkedJob(10, Status.RUNNING, "secret"),
        workers=(SeenWorker("w-1", 1, frozenset({"secret", "mail"})), SeenWorker("w-2", 1)),
    ).seen_by(_some)
    assert [link.job_id for link in facts.replays] == [9]
    assert facts.undo is None
    assert [worker.queues for worker in facts.workers] == [frozenset({"mail"}), None]
    seen = facts_with(undo=LinkedJob(10, Status.RUNNING, "mail")).seen_by(_some)
    assert seen.undo is not None


def test_a_reader_who_must_not_see_arguments_sees_no_keys_of_limits():
    limit = LimitState(name="api for 4711", limit="api", units=1, used=1, concurrent=1)
    assert [one.name for one in FlowFacts(limits=(limit,)).without_keys().limits] == ["api"]


def test_an_explanation_for_a_reader_of_some_queues_counts_hidden_jobs() -> None:
    assert "It waits for 2 jobs of queues that you may not see." in of(History(), hidden=2).text
    both = of(History(), unmet=(LinkedJob(3, Status.RUNNING, "mail"),), hidden=1)
    assert "It waits for job 3 (running), and for a job of a queue that you may not see." in both.text
    ended = History().do(c.DeadLetter, actor=OPERATOR, reason_code=ReasonCode.DEPENDENCY_UNAVAILABLE)
    assert "It depends on a job of a queue that you may not see, without success." in of(ended, hidden=1).text
