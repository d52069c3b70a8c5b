"""A supervised program that does a job: its lease, its result, its end."""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import EventType, Ledger, PolicyFields
from holdfast.files.keys import write_key
from tests.supervise.conftest import QUICK, Ended, Supervise, is_alive, pipe
from tests.support.signers import enrol
from tests.support.waiting import wait_until

SHORT: PolicyFields = {"heartbeat_interval": "1s", "missed_beats_max": 3, "lease_ttl": "3s"}
WAIT = ["sh", "-c", "echo $$; read line < gate; test $line = go"]


@pytest.fixture
def shared(url: str) -> Iterator[Ledger]:
    with holdfast.open(url) as ledger:
        yield ledger


def beats(ledger: Ledger, job_id: int) -> int:
    return len(ledger.events(job_id, types=["heartbeat"]))


def test_a_clean_exit_completes_the_job_with_its_result(ended: Ended, shared: Ledger) -> None:
    job = shared.enqueue("render", {"page": 3})
    program = 'echo $HOLDFAST_JOB $HOLDFAST_ATTEMPT; echo \'{"size": 12}\' > "$HOLDFAST_RESULT"'
    done = ended("--name", "ada", "--job", job.id, "--json", "--", "sh", "-c", program)
    assert (done.code, done.out.splitlines()[0]) == (0, f"{job.id} 1")
    found = shared.get(job.id)
    assert (found.status, found.result, found.last_owner) == ("succeeded", {"size": 12}, "ada")
    assert shared.check(job.id) == []


def test_a_result_that_a_validator_refuses_dead_letters_the_job(ended: Ended, shared: Ledger, folder: Path) -> None:
    hooks = "import holdfast\napp = holdfast.App()\napp.validator(lambda job, result: result['size'] > 0)\n"
    (folder / "hooks.py").write_text(hooks)
    (folder / "holdfast.toml").write_text('validators = "hooks:app"\n')
    job = shared.enqueue("render")
    ended("--job", job.id, "--", "sh", "-c", 'echo \'{"size": 0}\' > "$HOLDFAST_RESULT"')
    letter = shared.get(job.id).dead_letter
    assert letter is not None
    assert (letter["reason_code"], letter["failure_stage"]) == ("validation_failed", "output")
    assert letter["last_error"]["type"] == "RefusedByValidator"


def test_a_job_without_a_result_is_completed_with_none(ended: Ended, shared: Ledger) -> None:
    job = shared.enqueue("render")
    assert ended("--job", job.id, "--", "true").code == 0
    assert (shared.get(job.id).status, shared.get(job.id).result) == ("succeeded", None)


def test_the_reports_of_the_program_are_recorded(ended: Ended, shared: Ledger) -> None:
    job = shared.enqueue("render")
    report = '{"stage": "mixed", "progress": 9, "checkpoint": {"at": 3}}'
    assert ended("--job", job.id, "--", "sh", "-c", f"echo '{report}' >&3").code == 0
    found = shared.get(job.id)
    assert (found.stage, found.progress, found.checkpoint) == ("mixed", 9, {"at": 3})
    assert shared.check(job.id) == []


def test_the_lease_is_renewed_while_the_program_runs(supervise: Supervise, shared: Ledger, folder: Path) -> None:
    gate, job = pipe(folder), shared.enqueue("render", policy=SHORT)
    one = supervise("--name", "ada", "--job", job.id, "--", *WAIT)
    one.line()
    wait_until(lambda: shared.sweep() or beats(shared, job.id) >= 5)
    assert shared.get(job.id).status == "running"
    gate.write_text("go\n")
    assert one.rest().code == 0
    assert (shared.get(job.id).status, shared.get(job.id).attempt) == ("succeeded", 1)
    assert shared.check(job.id) == []


def test_restarts_are_within_the_attempt(ended: Ended, shared: Ledger) -> None:
    job = shared.enqueue("render")
    program = "echo $HOLDFAST_ATTEMPT; echo x >> tries; test $(wc -l < tries) = 3"
    done = ended(*QUICK, "--job", job.id, "--", "sh", "-c", program)
    assert (done.code, done.out) == (0, "1\n" * 3)
    assert [event.type for event in shared.events(job.id) if event.type is not EventType.HEARTBEAT] == [
        "enqueued", "claimed", "started", "succeeded"
    ]  # fmt: skip


def test_the_reports_of_the_program_are_sent_with_heartbeats(supervise: Supervise, shared: Ledger, folder: Path) -> None:
    pipe(folder)
    job = shared.enqueue("render", policy=SHORT)
    said = 'echo \'{"stage":"mix","progress":-1}\' >&3; echo \'{"progress":3}\' >&"$HOLDFAST_BEAT_FD"; '
    supervise("--job", job.id, "--", "sh", "-c", said + WAIT[2])
    wait_until(lambda: (shared.get(job.id).stage, shared.get(job.id).progress) == ("mix", 3))


def test_a_crash_loop_fails_the_attempt(ended: Ended, shared: Ledger) -> None:
    job = shared.enqueue("render")
    done = ended(*QUICK, "--max-restarts", 1, "--job", job.id, "--", "sh", "-c", "exit 3")
    assert done.code == 1
    found = shared.get(job.id)
    assert (found.status, found.attempt, found.releases) == ("queued", 1, 0)
    assert found.last_error["type"] == "RestartLimitExceeded"
    assert "last ended with 3, after 1 restart:" in found.last_error["message"]


def test_a_hang_in_the_last_attempt_is_a_timeout(ended: Ended, shared: Ledger) -> None:
    job = shared.enqueue("render", policy={"attempts_max": 1})
    hang = ("sh", "-c", "exec sleep 1000")
    assert (
        ended(*QUICK, "--stall-timeout", "1s", "--breaker-failures", 9, "--max-restarts", 0, "--job", job.id, "--", *hang).code
        == 1
    )
    found = shared.get(job.id)
    assert (found.status, found.reason_code, found.last_error["type"]) == ("dead_lettered", "timeout", "StallTimeout")


def test_a_program_that_cannot_be_started_fails_permanently(ended: Ended, shared: Ledger) -> None:
    job = shared.enqueue("render")
    assert ended("--job", job.id, "--", "./nowhere").code == 127
    assert (shared.get(job.id).status, shared.get(job.id).error["type"]) == ("failed", "UnrecoverableError")


def test_a_signal_to_stop_releases_the_job(supervise: Supervise, shared: Ledger, folder: Path) -> None:
    pipe(folder)
    job = shared.enqueue("render")
    one = supervise("--job", job.id, "--", *WAIT)
    one.line()
    one.signal()
    assert one.rest().code == 0
    assert (shared.get(job.id).status, shared.get(job.id).releases) == ("queued", 1)


def test_a_soft_cancel_is_a_signal_to_stop(supervise: Supervise, shared: Ledger, folder: Path) -> None:
    pipe(folder)
    job = shared.enqueue("render", policy=SHORT)
    one = supervise("--job", job.id, "--json", "--", *WAIT)
    pid = int(one.line())
    shared.cancel(job.id, reason="not needed")
    done = one.rest()
    assert (done.code, done.answer["data"]["reason"]) == (0, "operator_shutdown")
    assert (shared.get(job.id).status, is_alive(pid)) == ("cancelled", False)
    assert shared.check(job.id) == []


def test_a_program_that_writes_a_result_after_a_cancel_completes_the_job(
    supervise: Supervise, shared: Ledger, folder: Path
) -> None:
    job = shared.enqueue("render", policy=SHORT)
    program = (
        "import os, signal\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])\n"
        "print(flush=True)\n"
        "signal.sigwait([signal.SIGTERM])\n"
        "open(os.environ['HOLDFAST_RESULT'], 'w').write('7')\n"
    )
    one = supervise("--job", job.id, "--", sys.executable, "-c", program)
    one.line()
    shared.cancel(job.id)
    assert one.rest().code == 0
    assert (shared.get(job.id).status, shared.get(job.id).result) == ("succeeded", 7)


def test_a_lost_lease_ends_the_program_at_once(supervise: Supervise, shared: Ledger, folder: Path) -> None:
    pipe(folder)
    job = shared.enqueue("render", policy=SHORT)
    one = supervise("--grace", "1h", "--job", job.id, "--json", "--", "sh", "-c", "trap '' TERM; " + WAIT[2])
    pid = int(one.line())
    shared.cancel(job.id, hard=True)
    done = one.rest()
    assert (done.code, done.answer["error_code"], is_alive(pid)) == (1, "fence_lost", False)
    assert shared.check(job.id) == []


def test_a_supervisor_that_was_frozen_past_its_lease_is_fenced_off(supervise: Supervise, shared: Ledger, folder: Path) -> None:
    """Another holder has the job by then: the result of the program is not accepted."""
    gate, job = pipe(folder), shared.enqueue("render", policy=SHORT | {"backoff_base": 0})
    one = supervise("--job", job.id, "--json", "--", *WAIT)
    one.line()
    one.signal(signal.SIGSTOP)
    wait_until(lambda: shared.sweep() and shared.get(job.id).status == "queued")
    other = shared.claim_job(job.id, "eve")
    writer = os.open(gate, os.O_WRONLY)
    os.write(writer, b"go\n")
    os.close(writer)
    one.signal(signal.SIGCONT)
    done = one.rest()
    assert (done.code, done.answer["error_code"]) == (1, "fence_lost")
    shared.start(other.fence)
    shared.complete(other.fence, "by eve")
    assert shared.get(job.id).result == "by eve"
    assert shared.check(job.id) == []


def test_a_restarted_supervisor_continues_the_attempt(supervise: Supervise, ended: Ended, shared: Ledger, folder: Path) -> None:
    pipe(folder)
    job = shared.enqueue("render")
    one = supervise("--name", "ada", "--job", job.id, "--", *WAIT)
    one.line()
    one.signal(signal.SIGKILL)
    one.rest()
    done = ended("--name", "ada", *QUICK, "--job", job.id, "--", "sh", "-c", "echo $HOLDFAST_ATTEMPT")
    assert (done.code, done.out) == (0, "1\n")
    assert shared.get(job.id).status == "succeeded"
    assert shared.check(job.id) == []


@pytest.mark.parametrize(("result", "code"), [("{", "validation_error"), ('{"a":NaN}', "validation_error")])
def test_an_invalid_result_dead_letters_the_job(ended: Ended, shared: Ledger, result: str, code: str) -> None:
    job = shared.enqueue("render")
    done = ended("--job", job.id, "--json", "--", "sh", "-c", f"printf '{result}' > $HOLDFAST_RESULT")
    assert (done.code, done.answer["error_code"]) == (1, code)
    letter: dict[str, Any] | None = shared.get(job.id).dead_letter
    assert letter is not None
    assert (letter["reason_code"], letter["failure_stage"]) == ("validation_failed", "output")


def test_a_program_is_not_started_if_its_job_cannot_be_claimed(ended: Ended, shared: Ledger) -> None:
    job = shared.enqueue("render")
    shared.claim("eve")
    done = ended("--job", job.id, "--json", "--", "echo", "ran")
    assert (done.code, done.answer["error_code"]) == (1, "lease_conflict")
    assert ended("--job", 99, "--json", "--", "echo", "ran").answer["error_code"] == "not_found"
    assert shared.runs() == []


def test_a_program_with_a_job_needs_no_ledger_url(ended: Ended, shared: Ledger) -> None:
    job = shared.enqueue("render", {"page": 3})
    program = (
        "import json, os, holdfast\n"
        "with holdfast.open(os.environ['HOLDFAST_URL']) as ledger:\n"
        "    print(json.dumps(ledger.get(int(os.environ['HOLDFAST_JOB'])).args))\n"
    )
    assert ended("--job", job.id, "--", sys.executable, "-c", program).out == '{"page": 3}\n'


def test_a_program_whose_job_could_not_be_signed_is_not_started(ended: Ended, shared: Ledger, folder: Path, url: str) -> None:
    server, arm = holdfast.draw_key("server", "main"), holdfast.draw_key("worker", "arm-1")
    write_key(folder / "arm-1.key", arm)
    with holdfast.open(url, keys=[server]) as trusted:
        enrol(trusted, [server, arm])
    job = shared.enqueue("render", policy={"signed": "all"})
    asked = ("--job", job.id, "--key", "arm-1.key")
    done = ended("--name", "ada", *asked, "--", "echo", "begun")
    assert (done.code, done.out) == (1, "")
    refused = f"signature_invalid: job {job.id} has to be signed by worker 'ada': this process has no key of worker 'ada'"
    assert refused in done.err
    assert shared.get(job.id).status == "queued"
    assert ended("--name", "arm-1", *asked, "--", "true").code == 0
    assert (shared.get(job.id).status, shared.check(job.id)) == ("succeeded", [])
