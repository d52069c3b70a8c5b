"""Many processes that use one dedupe key: each call changes the waiting job or makes the next one, and none is lost."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg

from holdfast import Job, Ledger
from tests.support.histories import count_jobs, problems
from tests.support.processes import fleet

PROCESSES, CALLS = 12, 20
REPLACE: dict[str, Any] = {"dedupe_key": "key", "on_duplicate": "replace"}


def test_many_processes_postpone_one_job(store_url: str, real: Ledger) -> None:
    answers = fleet("workers.postpone_key", PROCESSES, url=store_url, key="key", calls=CALLS)
    found = [answer for process in answers for answer in process]
    assert len({id_ for id_, _, _ in found}) == 1
    assert sum(is_new for _, is_new, _ in found) == 1
    assert sorted(rev for _, _, rev in found) == list(range(1, PROCESSES * CALLS + 1))  # one event for each call
    job_id = found[0][0]
    events = real.events(job_id, limit=1_000)
    assert {(event.payload["args"]["by"], event.payload["args"]["call"]) for event in events} == {
        (by, call) for by in range(PROCESSES) for call in range(CALLS)
    }
    assert real.get(job_id).args == events[-1].payload["args"]
    assert [event.type.value for event in events] == ["enqueued"] + ["postponed"] * (PROCESSES * CALLS - 1)
    assert count_jobs(real) == 1
    assert problems(real) == []


def test_no_call_is_lost_while_others_run_the_jobs(store_url: str, real: Ledger) -> None:
    answers = fleet("workers.replace_and_run", PROCESSES, url=store_url, key="key", calls=CALLS)
    while left := real.claim("last", limit=10, start=True):
        for job in left:
            real.complete(job.fence, None)
    called = [id_ for process in answers[1::2] for id_ in process]
    asked: list[tuple[int, int]] = []
    for id_ in set(called):
        events = real.events(id_, types=["enqueued", "replaced"])
        asked += [(event.payload["args"]["by"], event.payload["args"]["call"]) for event in events]
        assert real.get(id_).args == events[-1].payload["args"]
    assert sorted(asked) == [(by, call) for by in range(1, PROCESSES, 2) for call in range(CALLS)]
    assert problems(real) == []


def test_a_free_key_goes_to_one_of_many_calls(store_url: str, real: Ledger) -> None:
    first = real.enqueue("once", dedupe_key="key", dedupe_for="1ms")
    real.cancel(first.id)
    answers = fleet("workers.enqueue_key", 16, url=store_url, key="key")
    assert sum(is_new for _, is_new in answers) == 1
    assert first.id not in {id_ for id_, _ in answers}
    assert problems(real) == []


def test_calls_in_one_transaction_with_crossing_keys_all_succeed(real: Ledger) -> None:
    def call(number: int) -> list[Job]:
        keys = ["a", "b"] if number % 2 else ["b", "a"]
        return real.enqueue_many(
            [{"kind": "k", "args": {"n": number}, "dedupe_key": key, "on_duplicate": "replace"} for key in keys]
        )

    call(0)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(call, range(1, 25)))
    assert len({job.id for jobs in found for job in jobs}) == 2
    assert count_jobs(real) == 2
    assert problems(real) == []


def test_an_open_transaction_that_replaces_a_job_hides_it_from_claims(postgres_url: str, on_postgres: Ledger) -> None:
    first = on_postgres.enqueue("once", {"n": 1}, **REPLACE)
    with psycopg.connect(postgres_url) as connection:
        changed = on_postgres.enqueue("once", {"n": 2}, connection=connection, **REPLACE)
        assert (changed.id, changed.args) == (first.id, {"n": 2})
        assert on_postgres.get(first.id).args == {"n": 1}
        assert on_postgres.claim("w") == []
        connection.rollback()
    assert on_postgres.get(first.id).args == {"n": 1}
    with psycopg.connect(postgres_url) as connection:
        on_postgres.enqueue("once", {"n": 3}, connection=connection, **REPLACE)
    [held] = on_postgres.claim("w")
    assert (held.id, held.args) == (first.id, {"n": 3})
    assert problems(on_postgres) == []
