"""SIGKILL in the middle of a batch: acknowledged batches are complete, and no batch is partial."""

import json
import random
from collections import Counter
from typing import Any

import pytest

from holdfast import Ledger
from tests.integration.programs.batches import ENQUEUE
from tests.support.histories import all_events, all_jobs, count_jobs, problems
from tests.support.processes import Program


def live_and_die(url: str, life: int, lines: int) -> list[list[Any]]:
    """The answers that a process got before it was killed."""
    with Program("batches", url, life) as program:
        assert program.answer() == ["ready"]
        said = [program.answer() for _ in range(lines)]
        # The process is in the middle of its next call.
        return said + [json.loads(line) for line in program.kill()]


def check(ledger: Ledger, lives: list[list[list[Any]]]) -> None:
    jobs = {job.id: job for job in all_jobs(ledger)}
    events = list(all_events(ledger))
    claimed = {(event.job_id, event.attempt): event.actor for event in events if event.type == "claimed"}
    started = {(event.job_id, event.attempt) for event in events if event.type == "started"}

    for life, said in enumerate(lives):
        for what, *facts in said:
            match what:
                case "enqueued":
                    batch, ids = facts
                    assert {(jobs[id_].args["life"], jobs[id_].args["batch"]) for id_ in ids} == {(life, batch)}
                case "claimed":
                    for id_, attempt in facts[0]:
                        assert claimed[id_, attempt].startswith(f"worker:worker-{life}#")
                case "completed":
                    assert {jobs[id_].status for id_ in facts[0]} <= {"succeeded"}
                    assert all(jobs[id_].result == {"life": life} for id_ in facts[0])

    # A batch is complete or missing, acknowledged or not. A claim with start always has its start.
    sizes = Counter((job.args["life"], job.args["batch"]) for job in jobs.values())
    assert set(sizes.values()) <= {ENQUEUE}
    assert claimed.keys() == started
    assert problems(ledger) == []
    assert count_jobs(ledger) == len(jobs) == sum(event.type == "enqueued" for event in events)
    # One process at a time: at most its last batch of each kind has no answer.
    answered = sum(what == "enqueued" for said in lives for what, *_ in said)
    assert answered <= len(sizes) <= answered + len(lives)


def kill_often(ledger: Ledger, url: str, *, lives: int, lines: int) -> None:
    chance = random.Random(lives)
    check(ledger, [live_and_die(url, life, chance.randrange(1, lines)) for life in range(lives)])


def test_a_killed_process_leaves_acknowledged_changes_and_no_partial_ones(store_url: str, real: Ledger) -> None:
    kill_often(real, store_url, lives=4, lines=25)


@pytest.mark.torture
def test_many_killed_processes_leave_acknowledged_changes_and_no_partial_ones(store_url: str, real: Ledger) -> None:
    kill_often(real, store_url, lives=100, lines=60)
