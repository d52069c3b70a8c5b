"""Verbs on many chosen jobs are one request: each job has its own answer, and a lost answer is settled by the key."""

import pytest

import holdfast
from holdfast import HoldfastError, Job, Ledger, Unavailable
from holdfast.core import limits
from tests.remote.scripted import JSON, Scripted, refusal
from tests.remote.test_answers import ANY
from tests.remote.test_lost_answers import Lost, lost
from tests.support.proxy import Proxy

LONGEST_KEY = "k" * limits.KEY_BYTES_MAX


def codes(answers: list[Job | HoldfastError]) -> list[str]:
    return [answer.code if isinstance(answer, HoldfastError) else answer.status.value for answer in answers]


def test_a_request_id_may_have_the_greatest_length(remote: Ledger, behind: Ledger) -> None:
    ids = [remote.enqueue("index_page").id for _ in range(3)]
    assert codes(remote.on_jobs("cancel", ids, request_id=LONGEST_KEY)) == ["cancelled"] * 3
    assert codes(remote.on_jobs("cancel", ids, request_id=LONGEST_KEY)) == ["cancelled"] * 3
    assert [len(behind.events(id_)) for id_ in ids] == [2, 2, 2]


@lost
def test_a_lost_batch_changes_each_job_once(remote: Ledger, behind: Ledger, line: Proxy, when: Lost) -> None:
    failed = behind.enqueue_many([{"kind": "index_page"}] * 3)
    behind.on_jobs("cancel", [job.id for job in failed])
    line.cut(when, statement=b"POST /v1/batches")
    replays = remote.on_jobs("replay", [job.id for job in failed])
    assert line.was_cut.is_set()
    assert [job.replay_of for job in replays if isinstance(job, Job)] == [job.id for job in failed]
    assert len(behind.list()) == 6
    assert remote.metrics.read().counters["holdfast_enqueued_total"] == {("index_page",): 3}


def test_a_server_that_is_away_fails_the_call_and_not_each_job(remote: Ledger, line: Proxy) -> None:
    remote.patience = 0.3
    line.go_away()
    with pytest.raises(Unavailable):
        remote.on_jobs("cancel", range(1, 1_001))


def test_a_locked_job_is_the_answer_for_that_job() -> None:
    locked = refusal(503, "unavailable", retryable=True, context={"outcome": "none", "locked": True})[2]
    answer = {"answers": [{"job_id": 7, "problem": locked}]}
    with Scripted((200, JSON, answer, {})) as script, holdfast.open(script.url, token=ANY) as ledger:
        [found] = ledger.on_jobs("cancel", [7])
    assert isinstance(found, Unavailable)
    assert found.locked
    assert script.asked[-1][1] == "/v1/batches?return=jobs"
