"""What finished jobs keep: dead-letter fields, notes, replays."""

import itertools
from typing import Any

import pytest

from holdfast import FailureStage, Ledger, ReasonCode
from holdfast.testing import ManualClock
from tests.contract.builders import (
    BUILDERS,
    FINISHED,
    LIVE,
    WINDOW,
    WORKER,
    cancelled,
    dead_lettered,
    failed,
    queued,
    refused_without_trace,
    running_stalled,
    types,
)

FIELDS = {
    "reason_code",
    "failure_stage",
    "last_error",
    "attempts",
    "last_owner",
    "last_lease_expires_at",
    "correlation_id",
}

# Dead letters


@pytest.mark.parametrize("status", LIVE)
def test_a_dead_letter_has_all_its_fields(ledger: Ledger, status: str):
    made = BUILDERS[status](ledger)
    before = ledger.get(made.id)
    job = ledger.dead_letter(made.id, reason_code="timeout", failure_stage="commit", error="too slow")
    assert job.dead_letter is not None
    assert job.dead_letter.keys() == FIELDS
    assert job.dead_letter["last_error"] == {"message": "too slow"}
    assert job.dead_letter["attempts"] == before.attempt
    assert job.dead_letter["correlation_id"] == before.correlation_id
    assert (job.owner, job.claim_expires_at, job.result) == (None, None, None)
    payload = ledger.events(made.id)[-1].payload
    assert payload.keys() == FIELDS
    assert ledger.check(made.id) == []


def test_every_reason_and_stage_is_kept(ledger: Ledger):
    for code, stage in itertools.product(set(ReasonCode) - {ReasonCode.COMPENSATION_FAILED}, FailureStage):
        job = ledger.dead_letter(queued(ledger).id, reason_code=code.value, failure_stage=stage.value)
        assert job.dead_letter is not None
        assert (job.dead_letter["reason_code"], job.dead_letter["failure_stage"]) == (code, stage)


@pytest.mark.parametrize("field", ["reason_code", "failure_stage"])
def test_other_reasons_and_stages_are_refused(ledger: Ledger, field: str):
    made = queued(ledger)
    given: dict[str, Any] = {"reason_code": "timeout", field: "because"}
    with refused_without_trace(ledger, "validation_error"):
        ledger.dead_letter(made.id, **given)


# Notes


def test_a_job_may_get_several_notes(ledger: Ledger):
    made = failed(ledger)
    before = ledger.get(made.id)
    ledger.annotate(made.id, "compensation_failed")
    ledger.annotate(made.id, "compensated")
    job = ledger.annotate(made.id, "discarded")
    assert types(ledger, made.id)[-3:] == ["compensation_failed", "compensated", "discarded"]
    assert (job.note, job.finished_at) == ("discarded", before.finished_at)


@pytest.mark.parametrize("note", ["succeeded", "queued", "", None, 7])
def test_unknown_notes_are_refused(ledger: Ledger, note):
    made = failed(ledger)
    with refused_without_trace(ledger, "validation_error"):
        ledger.annotate(made.id, note)


# Replays


def test_a_replay_inherits_all_options_of_its_original(ledger: Ledger):
    options = {
        "kind": "walk",
        "queue": "robots",
        "priority": 7,
        "dedupe_key": "lobby",
        "tier": "in_home",
        "correlation_id": "round-3",
        "trace_id": "abc",
        "policy": {"attempts_max": 2},
    }
    made = failed(ledger, **options)
    first, fresh = ledger.get(made.id), ledger.replay(made.id)
    assert fresh.args == first.args == {"n": 1}
    for name in ("kind", "queue", "priority", "dedupe_key", "tier", "correlation_id", "trace_id"):
        assert getattr(fresh, name) == options[name]
    assert ledger.claim_job(fresh.id, WORKER).attempts_max == 2
    assert ledger.check(fresh.id) == []


def test_a_replay_of_a_delayed_job_may_be_claimed_at_once(ledger: Ledger, clock: ManualClock):
    made = queued(ledger, delay="1h")
    ledger.cancel(made.id)
    assert ledger.replay(made.id).available_at == clock.now()


@pytest.mark.parametrize("build", [failed, cancelled, dead_lettered])
def test_replaying_again_returns_a_live_replay(ledger: Ledger, build):
    made = build(ledger)
    fresh = ledger.replay(made.id)
    again = ledger.replay(made.id)
    assert (fresh.is_new, again.is_new, again.id) == (True, False, fresh.id)


def test_a_job_may_be_replayed_again_after_its_replay_ended(ledger: Ledger):
    made = failed(ledger)
    fresh = ledger.replay(made.id)
    ledger.cancel(fresh.id)
    again = ledger.replay(made.id)
    assert (again.is_new, again.replay_of) == (True, made.id)
    assert again.id != fresh.id


def test_a_replay_conflicts_with_a_live_job_of_the_same_key(ledger: Ledger):
    made = failed(ledger, queue="crawl", dedupe_key="page-1")
    other = queued(ledger, queue="crawl", dedupe_key="page-1")
    with refused_without_trace(ledger, "conflict") as caught:
        ledger.replay(made.id)
    assert caught.value.context["holder_id"] == other.id


def test_a_live_replay_holds_the_key(ledger: Ledger):
    made = failed(ledger, queue="crawl", dedupe_key="page-1")
    fresh = ledger.replay(made.id)
    found = ledger.enqueue("index_page", queue="crawl", dedupe_key="page-1")
    assert (found.id, found.is_new) == (fresh.id, False)


def test_a_job_whose_key_is_kept_forever_can_be_replayed(ledger: Ledger):
    made = failed(ledger, queue="crawl", dedupe_key="page-1", dedupe="forever")
    assert ledger.replay(made.id).is_new
    assert not ledger.enqueue("index_page", queue="crawl", dedupe_key="page-1").is_new


# Dedupe keys


def test_an_existing_key_returns_its_job_marked_as_not_new(ledger: Ledger):
    first = ledger.enqueue("index_page", {"n": 1}, dedupe_key="page-1")
    second = ledger.enqueue("index_page", {"n": 2}, dedupe_key="page-1")
    assert (first.is_new, second.is_new, second.id, second.args) == (True, False, first.id, {"n": 1})
    assert types(ledger, first.id) == ["enqueued"]


def test_a_live_job_holds_its_key(ledger: Ledger):
    for status in LIVE:
        made = BUILDERS[status](ledger, queue=status, dedupe_key="page-1")
        assert ledger.enqueue("index_page", queue=status, dedupe_key="page-1").id == made.id


@pytest.mark.parametrize(("dedupe", "is_new"), [("live", True), ("forever", False)])
def test_a_finished_job_holds_its_key_only_if_it_is_kept_forever(ledger: Ledger, dedupe: str, is_new: bool):
    for status in FINISHED:
        BUILDERS[status](ledger, queue=status, dedupe_key="page-1", dedupe=dedupe)
        assert ledger.enqueue("index_page", queue=status, dedupe_key="page-1").is_new is is_new


def test_a_requeued_job_keeps_its_key(ledger: Ledger):
    made = running_stalled(ledger, queue="crawl", dedupe_key="page-1", policy=WINDOW)
    ledger.requeue(made.id)
    assert ledger.enqueue("index_page", queue="crawl", dedupe_key="page-1").id == made.id
