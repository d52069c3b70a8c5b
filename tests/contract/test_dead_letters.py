"""Dead letters: filters, and replays in bulk."""

from datetime import timedelta
from typing import Any

import pytest

from holdfast import HoldfastError, Job, Ledger
from holdfast.testing import ManualClock
from tests.contract.builders import WORKER, failed, queued, refused_without_trace, running


def _dead(ledger: Ledger, *, code: str = "timeout", stage: str = "exec", **options: Any) -> int:
    made = queued(ledger, **options)
    ledger.dead_letter(made.id, reason_code=code, failure_stage=stage)
    return made.id


def _ids(jobs: list[Job]) -> list[int]:
    return [job.id for job in jobs]


def _jobs(answers: list[Job | HoldfastError]) -> list[Job]:
    assert all(isinstance(answer, Job) for answer in answers)
    return [answer for answer in answers if isinstance(answer, Job)]


# Finding


def test_only_dead_letters_are_found(ledger: Ledger):
    failed(ledger)
    queued(ledger)
    assert ledger.dead_letters() == []
    dead = _dead(ledger)
    assert ledger.dead_letters() == [ledger.get(dead)]


@pytest.mark.parametrize(
    ("other", "wanted"),
    [
        ({"queue": "other"}, {"queue": "crawl"}),
        ({"kind": "other"}, {"kind": "index_page"}),
        ({"code": "parse_error"}, {"reason_code": "timeout"}),
        ({"stage": "fetch"}, {"failure_stage": "exec"}),
    ],
    ids=["queue", "kind", "code", "stage"],
)
def test_dead_letters_are_filtered_by_their_fields(ledger: Ledger, other: dict[str, Any], wanted: dict[str, Any]):
    first = _dead(ledger, queue="crawl")
    second = _dead(ledger, **{"queue": "crawl"} | other)
    assert _ids(ledger.dead_letters(**wanted)) == [first]
    assert _ids(ledger.dead_letters()) == [first, second]


def test_dead_letters_are_filtered_by_time(ledger: Ledger, clock: ManualClock):
    ids, times = [], []
    for _ in range(3):
        ids.append(_dead(ledger))
        times.append(clock.now())
        clock.advance(10)
    assert _ids(ledger.dead_letters(since=times[1])) == ids[1:]
    assert _ids(ledger.dead_letters(until=times[1])) == ids[:1]
    assert _ids(ledger.dead_letters(since=times[1], until=times[1] + timedelta(microseconds=1))) == ids[1:2]


def test_dead_letters_are_read_in_pages(ledger: Ledger):
    ids = [_dead(ledger) for _ in range(5)]
    first = ledger.dead_letters(limit=2)
    second = ledger.dead_letters(limit=2, after=first[-1].id)
    assert _ids(first + second + ledger.dead_letters(limit=2, after=second[-1].id)) == ids


def test_discarded_letters_are_left_out_after_any_later_note(ledger: Ledger):
    kept, discarded, noted = _dead(ledger), _dead(ledger), _dead(ledger)
    ledger.discard(discarded)
    ledger.annotate(discarded, "compensated")
    ledger.annotate(noted, "compensated")
    assert _ids(ledger.dead_letters()) == [kept, noted]
    assert _ids(ledger.dead_letters(discarded=True)) == [kept, discarded, noted]


def test_a_dead_letter_has_every_field(ledger: Ledger):
    made = running(ledger, correlation_id="order-7")
    lease = ledger.get(made.id).claim_expires_at
    ledger.fail(made.fence, "no page", retryable=False, reason_code="parse_error", failure_stage="input")
    [letter] = ledger.dead_letters()
    assert letter.dead_letter == {
        "reason_code": "parse_error",
        "failure_stage": "input",
        "last_error": {"message": "no page"},
        "attempts": 1,
        "last_owner": WORKER,
        "last_lease_expires_at": lease,
        "correlation_id": "order-7",
    }


def test_a_letter_that_was_never_claimed_has_no_owner(ledger: Ledger):
    _dead(ledger)
    letter = ledger.dead_letters()[0].dead_letter
    assert letter is not None
    assert (letter["attempts"], letter["last_owner"], letter["last_lease_expires_at"], letter["last_error"]) == (
        0,
        None,
        None,
        None,
    )


BAD: list[tuple[dict[str, Any], str]] = [
    ({"reason_code": "because"}, "validation_error"),
    ({"failure_stage": "because"}, "validation_error"),
    ({"queue": ""}, "validation_error"),
    ({"since": 7}, "validation_error"),
    ({"discarded": 1}, "validation_error"),
    ({"limit": 1_001}, "limit_exceeded"),
    ({"limit": 0}, "limit_exceeded"),
    ({"after": -1}, "limit_exceeded"),
]


@pytest.mark.parametrize(("fields", "code"), BAD, ids=str)
def test_wrong_filters_are_refused(ledger: Ledger, fields: dict[str, Any], code: str):
    _dead(ledger)
    with refused_without_trace(ledger, code):
        ledger.dead_letters(**fields)


# Replaying


def _replay(ledger: Ledger, **options: Any) -> list[Job | HoldfastError]:
    """Replay all dead letters."""
    return ledger.on_jobs("replay", _ids(ledger.dead_letters()), **options)


def test_each_letter_is_replayed_and_linked(ledger: Ledger):
    ids = [_dead(ledger, queue="crawl") for _ in range(3)]
    fresh = _jobs(_replay(ledger))
    assert [(job.replay_of, job.status, job.is_new) for job in fresh] == [(id_, "queued", True) for id_ in ids]
    assert [ledger.check(job.id) for job in fresh] == [[], [], []]
    assert ledger.events(fresh[0].id)[0].actor == "operator:client"


def _replayed(ledger: Ledger, job_id: int, end: str) -> int:
    """Replay the job and end the replay in this status."""
    replay = ledger.replay(job_id)
    if end == "cancelled":
        ledger.cancel(replay.id)
    elif end == "dead_lettered":
        ledger.dead_letter(replay.id, reason_code="timeout")
    elif end != "queued":
        fence = ledger.claim_job(replay.id, worker=WORKER).fence
        ledger.start(fence)
        if end == "succeeded":
            ledger.complete(fence, None)
        else:
            ledger.fail(fence, "no page", retryable=False)
    assert ledger.get(replay.id).status == end
    return replay.id


@pytest.mark.parametrize("end", ["queued", "succeeded"])
def test_a_replayed_letter_is_skipped(ledger: Ledger, end: str):
    replay = _replayed(ledger, _dead(ledger), end)
    assert [(job.id, job.is_new) for job in _jobs(_replay(ledger))] == [(replay, False)]
    assert [job.is_new for job in _jobs(_replay(ledger, again=True))] == [end == "succeeded"]


def test_a_dead_lettered_replay_is_replayed_instead_of_its_original(ledger: Ledger):
    letter = _dead(ledger)
    replay = _replayed(ledger, letter, "dead_lettered")
    assert [(job.replay_of, job.is_new) for job in _jobs(_replay(ledger))] == [(letter, False), (replay, True)]


def test_repeated_replays_of_all_letters_create_no_more_jobs(ledger: Ledger):
    _dead(ledger)
    for _ in range(3):
        [fresh] = [job for job in _jobs(_replay(ledger)) if job.is_new]
        ledger.dead_letter(fresh.id, reason_code="timeout")
    assert len(ledger.dead_letters()) == 4
    assert [job.is_new for job in _jobs(_replay(ledger))] == [False, False, False, True]
    assert len(ledger.list(status="queued")) == 1


@pytest.mark.parametrize("end", ["failed", "cancelled"])
def test_a_replay_that_did_not_succeed_does_not_count(ledger: Ledger, end: str):
    letter = _dead(ledger)
    _replayed(ledger, letter, end)
    assert [(job.replay_of, job.is_new) for job in _jobs(_replay(ledger))] == [(letter, True)]


def test_the_replay_of_a_failed_replay_counts(ledger: Ledger):
    letter = _dead(ledger)
    in_vain = _replayed(ledger, letter, "failed")
    good = _replayed(ledger, in_vain, "succeeded")
    assert [(job.id, job.is_new) for job in _jobs(_replay(ledger))] == [(good, False)]


def test_the_newest_replay_that_counts_is_the_answer(ledger: Ledger):
    letter = _dead(ledger)
    counts = _replayed(ledger, letter, "succeeded")
    in_vain = ledger.on_jobs("replay", [letter], again=True)[0]
    assert isinstance(in_vain, Job)
    ledger.cancel(in_vain.id)
    assert [(job.id, job.is_new) for job in _jobs(_replay(ledger))] == [(counts, False)]


def test_a_failed_job_that_was_replayed_is_skipped_like_a_letter(ledger: Ledger):
    job_id = failed(ledger).id
    replay = _replayed(ledger, job_id, "succeeded")
    assert [job.id for job in _jobs(ledger.on_jobs("replay", [job_id]))] == [replay]
    assert ledger.replay(job_id).is_new, "the verb on one job replays it again"


def test_the_option_again_is_part_of_the_request(ledger: Ledger):
    _replayed(ledger, _dead(ledger), "succeeded")
    _replay(ledger, request_id="r")
    [answer] = _replay(ledger, request_id="r", again=True)
    assert isinstance(answer, HoldfastError) and answer.code == "idempotency_conflict"


def test_a_refused_replay_does_not_affect_the_others(ledger: Ledger):
    first = _dead(ledger, queue="crawl")
    taken = _dead(ledger, queue="crawl", dedupe_key="page")
    last = _dead(ledger, queue="crawl")
    ledger.enqueue("index_page", queue="crawl", dedupe_key="page")
    answers = _replay(ledger)
    refusal = answers[1]
    assert isinstance(refusal, HoldfastError)
    assert (refusal.code, refusal.context["job_id"]) == ("conflict", taken)
    assert [job.replay_of for job in answers if isinstance(job, Job)] == [first, last]


def test_a_client_may_not_replay(ledger: Ledger):
    from holdfast import Actor, Role

    _dead(ledger)
    [answer] = _replay(ledger, actor=Actor(Role.CLIENT, "shop"))
    assert isinstance(answer, HoldfastError)
    assert answer.code == "forbidden"
