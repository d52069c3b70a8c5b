"""Workers as real processes that are killed, frozen and restarted."""

import os
import signal
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest

from holdfast import EventType, Job, Ledger
from holdfast.worker.processes import ChildProcess
from tests.support.waiting import wait_until
from tests.worker.fleet import Fleet


def lines(path: Path) -> list[list[str]]:
    return [line.split() for line in path.read_text().splitlines()] if path.exists() else []


def ended(ledger: Ledger, job: Job) -> Job:
    wait_until(lambda: ledger.get(job.id).finished_at is not None, seconds=60, what=f"job {job.id}: {ledger.events(job.id)[-3:]}")
    assert ledger.check(job.id) == []
    return ledger.get(job.id)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_killed_workers_job_is_finished_by_another(
    fleet: Fleet, real: Ledger, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "log"
    pids = {fleet.start(name): name for name in ("ant", "bee")}
    job = real.enqueue("hold", {"log": str(log), "go": str(tmp_path / "never")})
    [[pid, _]] = wait_until(lambda: lines(log))
    fleet.kill(pids[int(pid)])
    found = ended(real, job)
    assert found.result["attempt"] == 2
    assert found.result["pid"] != int(pid)
    events = real.events(job.id)
    assert Counter(event.type for event in events)[EventType.SUCCEEDED] == 1
    silent = [event for event in events if event.attempt == 1 and event.actor.startswith("worker:")][-1].received_at
    again = next(event for event in events if event.type is EventType.CLAIMED and event.attempt == 2).received_at
    stalled = next(event for event in events if event.type is EventType.STALLED)
    assert (stalled.received_at - silent).total_seconds() > 1.0, "stalled before the policy allows"
    with capsys.disabled():
        sys.stdout.write(f"\n  time to recovery after SIGKILL: {(again - silent).total_seconds():.2f} s; 1 s of it silence\n")


def freeze(fleet: Fleet, name: str, ledger: Ledger) -> None:
    """Stop a process, but not in the middle of a transaction: on SQLite it would block every writer."""
    while True:
        fleet.send(name, signal.SIGSTOP)
        probe = threading.Thread(target=ledger.take_duty, args=("probe", "test"), kwargs={"ttl": 1})
        probe.start()
        probe.join(timeout=1)
        if not probe.is_alive():
            return
        fleet.send(name, signal.SIGCONT)
        probe.join()


def test_a_frozen_worker_that_continues_is_refused(fleet: Fleet, real: Ledger, tmp_path: Path) -> None:
    log, go = tmp_path / "log", tmp_path / "go"
    pids = {fleet.start(name): name for name in ("ant", "bee")}
    job = real.enqueue("hold", {"log": str(log), "go": str(go)})
    [[pid, _]] = wait_until(lambda: lines(log))
    frozen = pids[int(pid)]
    freeze(fleet, frozen, real)
    found = ended(real, job)
    assert found.result["attempt"] == 2
    go.touch()
    fleet.send(frozen, signal.SIGCONT)
    fleet.send(frozen, signal.SIGTERM)
    assert fleet.wait(frozen) == 0
    late = real.get(job.id)
    assert (late.rev, late.result, real.check(job.id)) == (found.rev, found.result, [])


def test_holding_the_interpreter_in_a_thread_is_fenced(fleet: Fleet, real: Ledger) -> None:
    for name in ("ant", "bee"):
        fleet.start(name)
    wait_until(lambda: len(real.workers()) == 2)
    job = real.enqueue("in_thread", {"seconds": 10})
    found = ended(real, job)
    assert (found.result, found.attempt) == (2, 2)


def test_holding_the_interpreter_in_a_process_keeps_the_lease(fleet: Fleet, real: Ledger) -> None:
    fleet.start("ant")
    fleet.start("bee")
    found = ended(real, real.enqueue("in_process", {"seconds": 3}))
    assert (found.result, found.attempt) == (1, 1)


def test_a_rolling_restart_under_load_loses_and_doubles_nothing(fleet: Fleet, real: Ledger, tmp_path: Path) -> None:
    log, done = tmp_path / "log", threading.Event()
    jobs: list[Job] = []

    def produce() -> None:
        while not done.is_set() or len(jobs) < 2_000:
            first = len(jobs)
            jobs.extend(
                real.enqueue_many([{"kind": "count", "args": {"log": str(log), "n": n}} for n in range(first, first + 20)])
            )
            done.wait(0.01)

    producer = threading.Thread(target=produce)
    names = [f"w{number}" for number in range(5)]
    for name in names:
        fleet.start(name)
    producer.start()
    for name in names:
        fleet.send(name, signal.SIGTERM)
        assert fleet.wait(name) == 0
        fleet.start(name)
    done.set()
    producer.join()
    wait_until(lambda: real.counts()["default"] == {"succeeded": len(jobs)}, seconds=90, what=str(real.counts()))
    ran = Counter(int(n) for _, n in lines(log))
    assert ran == Counter(range(len(jobs))), "a job was run twice, or never"
    assert all(real.check(job.id) == [] for job in jobs[::50])


@pytest.mark.parametrize("kind", ["poison", "contained_poison"])
def test_a_job_that_kills_its_worker_is_dead_lettered(fleet: Fleet, real: Ledger, tmp_path: Path, kind: str) -> None:
    log = tmp_path / "log"
    fleet.start("w0")
    job = real.enqueue(kind, {"log": str(log)})
    for number in range(3):
        wait_until(lambda number=number: len(lines(log)) > number)  # type: ignore[misc]
        if kind == "poison":
            assert fleet.wait(f"w{number}") == 9
            fleet.start(f"w{number + 1}")
    found = ended(real, job)
    assert found.status == "dead_lettered"
    assert found.dead_letter is not None
    assert (found.dead_letter["reason_code"], found.dead_letter["attempts"]) == ("infrastructure_failure", 3)
    assert None not in found.dead_letter.values()
    assert len(lines(log)) == 3
    if kind == "contained_poison":
        assert not fleet.is_gone("w0")
        assert "exit code 9" in found.dead_letter["last_error"]["message"]


def test_a_hard_cancel_ends_the_process_and_all_it_started(fleet: Fleet, real: Ledger, tmp_path: Path) -> None:
    log = tmp_path / "log"
    fleet.start("ant")
    job = real.enqueue("with_children", {"log": str(log)})
    [pids] = wait_until(lambda: lines(log))
    real.cancel(job.id, hard=True)
    wait_until(lambda: not any(alive(int(pid)) for pid in pids))
    assert ended(real, job).status == "cancelled"


def test_a_process_that_takes_too_long_is_stopped(fleet: Fleet, real: Ledger, tmp_path: Path) -> None:
    log = tmp_path / "log"
    fleet.start("ant")
    job = real.enqueue("endless", {"log": str(log)})
    assert ended(real, job).last_error["type"] == "TimeoutError"
    [[pid]] = lines(log)
    wait_until(lambda: not alive(int(pid)))


def test_a_child_dies_with_its_worker(fleet: Fleet, real: Ledger, tmp_path: Path) -> None:
    log = tmp_path / "log"
    fleet.start("ant")
    job = real.enqueue("asked", {"log": str(log)})
    [[pid]] = wait_until(lambda: lines(log))
    fleet.kill("ant")
    wait_until(lambda: not alive(int(pid)))
    assert real.get(job.id).status == "running", "no worker is there to sweep"


def test_a_child_process_learns_of_a_soft_cancel(fleet: Fleet, real: Ledger, tmp_path: Path) -> None:
    log = tmp_path / "log"
    fleet.start("ant")
    job = real.enqueue("asked", {"log": str(log)})
    wait_until(lambda: real.get(job.id).progress == 7)
    real.cancel(job.id, reason="enough")
    found = ended(real, job)
    assert (found.status, found.stage, found.checkpoint) == ("cancelled", "waiting", "on my way out")


def test_a_context_works_from_a_child(fleet: Fleet, real: Ledger) -> None:
    pid = fleet.start("ant")
    job = real.enqueue("everything", {"n": 3}, correlation_id="c-1")
    found = ended(real, job)
    assert (found.progress, found.result["pid"] != pid) == (3, True)
    made = real.get(found.result["child"])
    assert (made.correlation_id, ended(real, made).result) == ("c-1", 3)


def test_the_result_of_a_child_is_checked(fleet: Fleet, real: Ledger) -> None:
    fleet.start("ant")
    wrong, right = real.enqueue("counts", {"wrong": True}), real.enqueue("counts", {"wrong": False})
    found = ended(real, wrong)
    assert (found.status, found.reason_code, found.failure_stage) == ("dead_lettered", "validation_failed", "output")
    assert ended(real, right).result == [1, "one"]


@pytest.mark.parametrize("end", ["returns", "fails", "beats"])
def test_the_last_progress_of_a_child_is_recorded_with_its_outcome(fleet: Fleet, real: Ledger, end: str) -> None:
    fleet.start("ant")
    found = ended(real, real.enqueue("says", {"end": end}))
    assert (found.status, found.progress, found.stage) == ("failed" if end == "fails" else "succeeded", 100, "done")


def test_what_a_child_reports_never_costs_its_attempt(fleet: Fleet, real: Ledger) -> None:
    fleet.start("ant")
    found = ended(real, real.enqueue("mumbles"))
    assert (found.status, found.attempt, found.progress, found.stage) == ("succeeded", 1, 50, None)
    assert [event.payload.get("progress") for event in real.events(found.id, types=["heartbeat"])][-2:] in ([33, 50], [None, 50])


def test_a_checkpoint_survives_the_death_of_its_worker(fleet: Fleet, real: Ledger, tmp_path: Path) -> None:
    log = tmp_path / "log"
    job = real.enqueue("saved", {"log": str(log)})
    for number in range(2):
        fleet.start(f"w{number}")
        assert fleet.wait(f"w{number}") == 9
    fleet.start("last")
    assert ended(real, job).result == 2
    assert lines(log) == [["1", "0"], ["2", "1"], ["3", "2"]]


def test_a_sweeper_that_dies_is_replaced(fleet: Fleet, real: Ledger, tmp_path: Path) -> None:
    """All workers but one are killed, with the sweeper among them, and their jobs are requeued."""
    log = tmp_path / "log"
    pids = {fleet.start(name, threads=2): name for name in ("ant", "bee", "cat")}
    jobs = [real.enqueue("hold", {"log": str(log), "go": str(tmp_path / "never")}) for _ in range(6)]
    wait_until(lambda: len(lines(log)) == 6)
    for name in ("ant", "bee", "cat"):
        fleet.kill(name)
    fleet.start("dog", threads=6)
    for job in jobs:
        assert ended(real, job).result["attempt"] == 2
    assert len(pids) == 3


def test_a_handler_that_forks_answers_once_for_its_own_job(fleet: Fleet, real: Ledger, tmp_path: Path) -> None:
    log = tmp_path / "log"
    first = real.enqueue("forks", {"log": str(log)})
    others = [real.enqueue("named", {"name": name}) for name in ("ant", "bee")]
    fleet.start("worker", processes=1)
    assert [ended(real, job).result for job in (first, *others)] == ["forked", "ant", "bee"]
    wait_until(lambda: len(lines(log)) == 2)


def test_a_dead_child_is_noticed_although_a_fork_of_it_lives(fleet: Fleet, real: Ledger, tmp_path: Path) -> None:
    log = tmp_path / "log"
    job = real.enqueue("leaves_an_heir", {"log": str(log)})
    fleet.start("worker", processes=1)
    assert ended(real, job).last_error == {"type": "ProcessDied", "message": "its process ended with exit code 9"}
    os.kill(int(lines(log)[0][0]), signal.SIGKILL)


def test_a_timedelta_of_a_retry_is_passed_from_a_child(fleet: Fleet, real: Ledger) -> None:
    job = real.enqueue("later")
    fleet.start("worker", processes=1)
    again = wait_until(lambda: real.events(job.id, types=["requeued"]))[0]
    assert again.payload["available_at"] - again.received_at.timestamp() * 1e6 == pytest.approx(300e6, abs=2)


@pytest.mark.parametrize("everybody", [False, True])
def test_a_child_process_learns_that_its_worker_stops(fleet: Fleet, real: Ledger, tmp_path: Path, everybody: bool) -> None:
    """The worker tells the child. A signal to the whole process group ends no attempt."""
    log = tmp_path / "log"
    job = real.enqueue("asked", {"log": str(log)})
    fleet.start("worker", processes=1, shutdown_timeout="1s")
    [[pid]] = wait_until(lambda: lines(log))
    if everybody:
        os.kill(int(pid), signal.SIGTERM)
    fleet.send("worker", signal.SIGTERM)
    assert fleet.wait("worker") == 0
    found = real.get(job.id)
    assert (found.status, found.releases, found.checkpoint) == ("queued", 1, "on my way out")


@pytest.mark.parametrize("what", ["nan", "surrogate", "integer", "object"])
def test_a_result_of_a_child_that_cannot_be_stored_is_refused(fleet: Fleet, real: Ledger, what: str) -> None:
    job = real.enqueue("odd", {"what": what})
    fleet.start("worker", processes=1)
    found = ended(real, job).dead_letter
    assert found is not None
    assert (found["reason_code"], found["failure_stage"]) == ("validation_failed", "output")


def test_a_wrong_call_to_holdfast_in_a_child_process_is_tried_again(fleet: Fleet, real: Ledger) -> None:
    fleet.start("ant")
    found = ended(real, real.enqueue("miscalls"))
    assert (found.attempt, found.reason_code, found.failure_stage) == (2, "exhausted_retries", "exec")
    assert found.last_error["type"] == "ValidationError"


def test_a_process_that_was_killed_is_given_no_other_job() -> None:
    """Between the kill and its end, a process still looks alive."""
    child = ChildProcess()
    child.kill()
    try:
        assert child.is_unusable
    finally:
        child.close()
