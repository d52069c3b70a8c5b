"""`--dialect`: events with the names of other systems."""

import json
from pathlib import Path

import pytest

import holdfast
from holdfast.core.vocabulary import Dialect
from tests.cli.conftest import Run, Start

NAMES = {
    "holdfast": ["enqueued", "claimed", "started", "heartbeat", "succeeded"],
    "liveness": ["enqueued", "claimed", "started", "JOB_HEARTBEAT", "succeeded"],
    "jobs": ["enqueued", "job_claimed", "job_started", "job_heartbeat", "job_succeeded"],
    "tasks": ["enqueued", "task_claimed", "started", "task_heartbeat", "succeeded"],
}


@pytest.fixture
def job_id(folder: Path) -> int:
    """A job that has succeeded."""
    with holdfast.open(f"sqlite:///{folder}/holdfast.db") as ledger:
        ledger.enqueue("tidy")
        [job] = ledger.claim("rob_1", start=True)
        ledger.heartbeat(job.fence, stage="TASK")
        ledger.complete(job.fence)
    return job.id


@pytest.mark.parametrize("dialect", Dialect)
def test_show_and_tail_use_the_names_of_the_dialect(run: Run, folder: Path, job_id: int, dialect: Dialect) -> None:
    shown = run("job", "events", job_id, "--dialect", dialect)
    assert [line.split()[2] for line in shown.out.splitlines()[1:]] == NAMES[dialect]
    translated = run("job", "events", job_id, "--dialect", dialect, "--json").answer["data"]["events"]
    assert [event["type"] for event in translated] == NAMES[dialect]

    tailed = run("events", "tail", "--once", "--dialect", dialect)
    assert [line.split()[2] for line in tailed.out.splitlines()] == NAMES[dialect]
    lines = run("events", "tail", "--once", "--dialect", dialect, "--json").out.splitlines()
    assert [json.loads(line)["data"]["event"] for line in lines] == translated


def test_a_follower_gets_the_types_it_names_in_its_dialect(folder: Path, start: Start, job_id: int) -> None:
    tail = start("events", "tail", "--after", 0, "--type", "job_lease_renewed", "--dialect", "liveness", "--json")
    event = json.loads(tail.line())["data"]["event"]
    assert (event["type"], event["toStatus"]) == ("JOB_HEARTBEAT", "EXECUTING")
    assert (event["payload"]["robotId"], event["payload"]["t"], event["payload"]["stage"]) == ("rob_1", event["at"], "TASK")


def test_types_are_accepted_by_any_name(run: Run, job_id: int) -> None:
    for name in ("heartbeat", "JOB_HEARTBEAT", "job_heartbeat", "task_heartbeat"):
        assert len(run("events", "tail", "--once", "--type", name).out.splitlines()) == 1
    assert run("events", "tail", "--once", "--type", "beat").code == 2
    assert run("events", "tail", "--once", "--no-beats", "--type", "JOB_HEARTBEAT").code == 2
    assert run("job", "events", job_id, "--dialect", "klingon").code == 2


def test_an_export_takes_no_dialect(run: Run, folder: Path, job_id: int) -> None:
    done = run("events", "export", "--dialect", "jobs", "--out", "other.jsonl")
    assert done.code == 2 and "Use holdfast events tail --once --json --dialect NAME." in done.err
    assert not (folder / "other.jsonl").exists()


def test_events_in_a_dialect_cannot_be_verified(run: Run, folder: Path, job_id: int) -> None:
    (folder / "other.jsonl").write_text(run("events", "tail", "--once", "--json", "--dialect", "jobs").out)
    refused = run("verify", "other.jsonl")
    assert refused.code == 1 and "This is not a complete Holdfast file" in refused.err + refused.out
