"""Many agents at once: no task is held by two agents at a time, and each is done once."""

import random
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import psycopg
import pytest
from psycopg import sql

from holdfast import Ledger
from holdfast.agent import Agent
from holdfast.testing import ManualClock
from tests.integration.conftest import Opener
from tests.support.histories import all_events, problems
from tests.support.processes import fleet
from tests.support.waiting import wait_until

LAYER = 10


def add_dependent_tasks(ledger: Ledger, count: int) -> list[int]:
    """Enqueue tasks in layers: each depends on up to three tasks of the layer before."""
    chance = random.Random(count)
    items: list[dict[str, Any]] = []
    for number in range(count):
        before = range(max(0, number // LAYER * LAYER - LAYER), number // LAYER * LAYER)
        on = chance.sample(before, k=min(len(before), chance.randrange(4)))
        items.append({"kind": "step", "ref": f"t{number}", "depends_on": [f"t{other}" for other in on], "priority": number % 3})
    return [job.id for job in ledger.enqueue_many(items)]


def check_each_done_once(ledger: Ledger, ids: list[int], answers: list[list[list[int]]]) -> None:
    assert sorted(id_ for done in answers for id_, _ in done) == ids
    assert {attempt for done in answers for _, attempt in done} == {1}
    counted = Counter((event.job_id, event.type.value) for event in all_events(ledger))
    for kind in ("claimed", "started", "succeeded"):
        assert [counted[id_, kind] for id_ in ids] == [1] * len(ids)
    assert problems(ledger) == []


def test_concurrent_threads_that_resume_get_different_tasks(store_url: str, opened: Opener) -> None:
    ledger, crowd = opened(store_url), 16
    ledger.enqueue_many([{"kind": "work", "priority": number % 2} for number in range(crowd + 4)])
    together = Barrier(crowd)

    def resume(number: int) -> int | None:
        agent = Agent(ledger, f"agent-{number}")
        together.wait(60)
        task = agent.resume().task
        return None if task is None else task.id

    with ThreadPoolExecutor(crowd) as pool:
        got = list(pool.map(resume, range(crowd)))
    assert None not in got
    assert len(set(got)) == crowd
    assert problems(ledger) == []


def test_concurrent_threads_that_resume_take_over_different_expired_claims(
    store_url: str, opened: Opener, clock: ManualClock
) -> None:
    crowd = 8
    ledger = opened(store_url, clock=clock)
    ids = [job.id for job in ledger.enqueue_many([{"kind": "work"}] * crowd)]
    for number, id_ in enumerate(ids):
        Agent(ledger, f"gone-{number}").start(id_)
    clock.advance(400)
    together = Barrier(crowd)

    def resume(number: int) -> tuple[int | None, str]:
        agent = Agent(ledger, f"agent-{number}")
        together.wait(60)
        brief = agent.resume()
        return (None if brief.task is None else brief.task.id), brief.why

    with ThreadPoolExecutor(crowd) as pool:
        got = list(pool.map(resume, range(crowd)))
    taken = [id_ for id_, why in got if why == "expired"]
    assert taken and len(set(taken)) == len(taken)
    assert all((id_ is None) == (why == "nothing") for id_, why in got)
    assert [ledger.get(id_).attempt for id_ in ids].count(2) == len(taken)
    assert problems(ledger) == []


def test_concurrent_processes_that_resume_get_different_tasks(store_url: str, opened: Opener) -> None:
    ledger = opened(store_url)
    ids = [job.id for job in ledger.enqueue_many([{"kind": "work"}] * 5)]
    got = fleet("agents.resume_once", 8, url=store_url)
    assert sorted(id_ for id_ in got if id_ is not None) == ids
    assert problems(ledger) == []


def test_processes_of_one_agent_share_its_task(store_url: str, opened: Opener) -> None:
    """Processes with the same name and session are one agent: all get its focus."""
    ledger = opened(store_url)
    ledger.enqueue_many([{"kind": "work"}] * 5)
    together = Barrier(6)

    def resume(number: int) -> int:
        together.wait(60)
        task = Agent(ledger, "ada").resume().task
        assert task is not None
        return task.id

    with ThreadPoolExecutor(6) as pool:
        assert len(set(pool.map(resume, range(6)))) == 1


def waiting_sessions(server_url: str) -> int:
    """The number of sessions that wait for a lock on a row."""
    with psycopg.connect(server_url, autocommit=True) as connection:
        [(count,)] = connection.execute("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'").fetchall()
        return int(count)


def test_a_focus_that_ends_during_the_resume_is_skipped(pg_url: str, postgres_url: str, opened: Opener) -> None:
    """The resume has read its focus as running, and waits for its row, which another transaction has locked to end it."""
    ledger, other = opened(pg_url), opened(pg_url)
    one, two = (ledger.enqueue("work").id for _ in range(2))
    Agent(ledger, "ada").start(one)
    row = sql.SQL("SELECT 1 FROM {} WHERE id = %s FOR UPDATE").format(sql.Identifier(pg_url.partition("schema=")[2], "jobs"))
    with ThreadPoolExecutor(2) as pool, psycopg.connect(postgres_url) as holding:
        holding.execute(row, (one,))
        ended = pool.submit(other.cancel, one, hard=True)
        wait_until(lambda: waiting_sessions(postgres_url) == 1, what="the cancel waits")
        resumed = pool.submit(Agent(ledger, "ada").resume)
        wait_until(lambda: waiting_sessions(postgres_url) == 2, what="the resume waits")
        holding.commit()
        assert ended.result().status == "cancelled"
        brief = resumed.result()
    assert brief.task is not None
    assert (brief.task.id, brief.why) == (two, "next")
    assert problems(ledger) == []


def test_a_few_agents_complete_dependent_tasks(store_url: str, opened: Opener) -> None:
    ledger = opened(store_url)
    ids = add_dependent_tasks(ledger, 60)
    answers = fleet("agents.work", 8, url=store_url, tasks=60)
    check_each_done_once(ledger, ids, answers)


@pytest.mark.torture
def test_fifty_agents_complete_a_thousand_dependent_tasks(store_url: str, opened: Opener) -> None:
    ledger = opened(store_url)
    ids = add_dependent_tasks(ledger, 1_000)
    answers = fleet("agents.work", 50, url=store_url, tasks=1_000, timeout=1_800)
    check_each_done_once(ledger, ids, answers)
