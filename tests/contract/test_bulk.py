"""One verb on many jobs: one answer each, and what has changed meanwhile is left alone."""

from datetime import timedelta
from typing import Any

import pytest

from holdfast import HoldfastError, Job, Ledger
from holdfast.core import limits
from tests.contract.builders import (
    cancelled,
    dead_lettered,
    failed,
    queued,
    refused_without_trace,
    running,
    running_stalled,
    succeeded,
    types,
)

VERBS: dict[Any, dict[str, Any]] = {
    "cancel": {},
    "dead_letter": {"reason_code": "timeout"},
    "discard": {},
    "move": {"queue": "other"},
    "replay": {},
    "reprioritise": {"priority": 7},
    "requeue": {},
    "reschedule": {"delay": "1h"},
}


def call(ledger: Ledger, verb: Any, jobs: Any, **options: Any) -> list[Job | HoldfastError]:
    return ledger.on_jobs(verb, jobs, **VERBS[verb], **options)


def codes(answers: list[Job | HoldfastError]) -> list[str]:
    return [answer.code if isinstance(answer, HoldfastError) else answer.status.value for answer in answers]


def test_answers_are_in_the_order_of_the_jobs(ledger: Ledger):
    made = [queued(ledger).id, running(ledger).id, succeeded(ledger).id, queued(ledger).id]
    answers = ledger.on_jobs("cancel", [made[3], (made[2], None), (made[1], 3), made[0]], reason="not needed")
    assert codes(answers) == ["cancelled", "invalid_transition", "running", "cancelled"]
    assert [getattr(answer, "id", None) for answer in answers] == [made[3], None, made[1], made[0]]
    assert ledger.get(made[1]).cancel_reason == "not needed"


def test_a_job_that_has_changed_is_a_conflict_in_its_place(ledger: Ledger):
    first, second, third = (queued(ledger) for _ in range(3))
    ledger.reprioritise(second.id, 5)
    answers = ledger.on_jobs("cancel", [(first.id, 1), (second.id, 1), (third.id, 1)])
    assert codes(answers) == ["cancelled", "conflict", "cancelled"]
    assert isinstance(answers[1], HoldfastError)
    assert answers[1].context["job_id"] == second.id
    assert (answers[1].context["expected_rev"], answers[1].context["rev"]) == (1, 2)
    assert ledger.get(second.id).status == "queued"


def test_an_unknown_job_is_not_found_in_its_place(ledger: Ledger):
    made = queued(ledger)
    assert codes(ledger.on_jobs("cancel", [77, made.id])) == ["not_found", "cancelled"]


def test_dead_letters(ledger: Ledger):
    made = [queued(ledger).id, succeeded(ledger).id]
    assert codes(ledger.on_jobs("dead_letter", made, reason_code="timeout", failure_stage="fetch")) == [
        "dead_lettered",
        "invalid_transition",
    ]
    letter = ledger.get(made[0]).dead_letter
    assert letter is not None
    assert (letter["reason_code"], letter["failure_stage"]) == ("timeout", "fetch")


def test_discards(ledger: Ledger):
    made = [failed(ledger).id, queued(ledger).id, dead_lettered(ledger).id]
    assert codes(ledger.on_jobs("discard", made, reason="known")) == ["failed", "invalid_transition", "dead_lettered"]
    assert [types(ledger, id_)[-1] for id_ in made] == ["discarded", "enqueued", "discarded"]
    assert ledger.dead_letters() == []


def test_queued_jobs_are_moved_reprioritised_and_rescheduled(ledger: Ledger):
    made = [queued(ledger).id, running(ledger).id]
    for verb in ("move", "reprioritise", "reschedule"):
        assert codes(call(ledger, verb, made, reason="why")) == ["queued", "invalid_transition"]
    job = ledger.get(made[0])
    assert (job.queue, job.priority, job.available_at - job.created_at) == ("other", 7, timedelta(hours=1))
    assert [event.reason for event in ledger.events(job.id)[1:]] == ["why"] * 3


def test_requeues(ledger: Ledger):
    made = [running_stalled(ledger).id, running(ledger).id]
    assert codes(ledger.on_jobs("requeue", made)) == ["queued", "invalid_transition"]


def test_replays(ledger: Ledger):
    made = [failed(ledger).id, succeeded(ledger).id, cancelled(ledger).id, dead_lettered(ledger).id]
    live = ledger.replay(made[2])
    answers = ledger.on_jobs("replay", [(id_, ledger.get(id_).rev) for id_ in made], reason="again")
    assert codes(answers) == ["queued", "invalid_transition", "queued", "queued"]
    jobs = [answer for answer in answers if isinstance(answer, Job)]
    assert [job.replay_of for job in jobs] == [made[0], made[2], made[3]]
    assert [job.is_new for job in jobs] == [True, False, True]
    assert jobs[1].id == live.id


@pytest.mark.parametrize("verb", VERBS)
def test_a_repeated_request_has_the_same_answers(ledger: Ledger, verb: str):
    made = [dead_lettered(ledger).id, queued(ledger).id, running_stalled(ledger).id]
    first = call(ledger, verb, made, request_id="r-1")
    before = ledger.events()
    again = call(ledger, verb, made, request_id="r-1")
    assert codes(again) == codes(first)
    assert [answer for answer in again if isinstance(answer, Job)] == [answer for answer in first if isinstance(answer, Job)]
    assert ledger.events() == before
    with refused_without_trace(ledger, "idempotency_conflict"):
        for answer in call(ledger, verb, made[:2], request_id="r-1"):
            if isinstance(answer, HoldfastError):
                raise answer


def test_jobs_are_changed_in_the_given_order(ledger: Ledger):
    first = queued(ledger).id
    second = ledger.enqueue("index_page", depends_on=[first]).id
    assert codes(ledger.on_jobs("cancel", [second, first])) == ["cancelled", "cancelled"]
    replays = [job for job in ledger.on_jobs("replay", [second, first]) if isinstance(job, Job)]
    assert replays[0].id < replays[1].id and [job.replay_of for job in replays] == [second, first]


@pytest.mark.parametrize(
    ("verb", "options", "field"),
    [
        ("complete", {}, "verb"),
        ("", {}, "verb"),
        ([], {}, "verb"),
        ("cancel", {"again": True}, "again"),
        ("cancel", {"hard": 1}, "hard"),
        ("dead_letter", {}, "reason_code"),
        ("move", {}, "queue"),
        ("reprioritise", {}, "priority"),
        ("replay", {"again": 1}, "again"),
        ("replay", {"expected_rev": 1}, "expected_rev"),
    ],
    ids=repr,
)
def test_a_wrong_verb_or_option_is_refused_and_nothing_changes(ledger: Ledger, verb: Any, options: Any, field: str):
    made = queued(ledger).id
    with refused_without_trace(ledger, "validation_error") as caught:
        ledger.on_jobs(verb, [made], **options)
    assert caught.value.context["field"] == field


def test_many_jobs_are_several_transactions(ledger: Ledger, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(limits, "SWEEP_BATCH", 2)
    made = [queued(ledger).id for _ in range(5)]
    assert codes(ledger.on_jobs("cancel", made[::-1], request_id="r-2")) == ["cancelled"] * 5
    assert codes(ledger.on_jobs("cancel", made[::-1], request_id="r-2")) == ["cancelled"] * 5
    assert [types(ledger, id_) for id_ in made] == [["enqueued", "cancelled"]] * 5


def test_no_jobs_have_no_answers(ledger: Ledger):
    assert [call(ledger, verb, []) for verb in VERBS] == [[]] * len(VERBS)


@pytest.mark.parametrize(
    ("jobs", "code", "field"),
    [
        ([1, 1], "validation_error", "jobs"),
        ([(1, 2, 3)], "validation_error", "jobs"),
        ([(1, "2")], "validation_error", "expected_rev"),
        ([(1, 0)], "limit_exceeded", "expected_rev"),
        (["1"], "validation_error", "job_id"),
        ([True], "validation_error", "job_id"),
        (7, "validation_error", "jobs"),
        ("77", "validation_error", "jobs"),
        (range(1, 1_002), "limit_exceeded", "jobs"),
    ],
    ids=repr,
)
def test_wrong_jobs_are_refused_and_nothing_changes(ledger: Ledger, jobs: Any, code: str, field: str):
    queued(ledger)
    for verb in VERBS:
        with refused_without_trace(ledger, code) as caught:
            call(ledger, verb, jobs)
        assert caught.value.context["field"] == field
