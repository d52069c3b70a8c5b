"""`holdfast events`: histories, and events that other processes have signed."""

import hashlib
import json
from pathlib import Path

import holdfast
from holdfast import Job
from holdfast.proof.envelopes import robot_envelope, sign_envelope
from tests.cli.conftest import Run
from tests.property.model import micros
from tests.support.signers import LIVENESS, SERVER, WORKER, enrol


def robot_beat(folder: Path) -> tuple[Job, str]:
    """A running job, and an envelope of its robot."""
    with holdfast.open(f"sqlite:///{folder}/jobs.db", keys=[SERVER]) as ledger:
        enrol(ledger, [SERVER, WORKER])
        ledger.enqueue("tidy", policy=LIVENESS)
        [job] = ledger.claim("w-1", start=True)
        assert WORKER.secret is not None
        envelope = robot_envelope(
            WORKER.secret,
            ledger_id=ledger.id,
            job_id=job.id,
            attempt=1,
            robot="w-1",
            incarnation=job.fence.incarnation,
            counter=1,
            at=micros(ledger.now()),
            stage="TASK",
        )
    return job, json.dumps(envelope)


def test_a_signed_event_is_recorded_from_a_file_or_standard_input(run: Run, folder: Path):
    job, envelope = robot_beat(folder)
    (folder / "beat.json").write_text(envelope)
    done = run("events", "append", "beat.json", "--db", "sqlite:///jobs.db")
    assert (done.code, done.out) == (0, f"Recorded: heartbeat of job {job.id}, rev 4, signed by {WORKER.key_id}.\n")
    again = run("events", "append", "-", "--db", "sqlite:///jobs.db", "--json", stdin=envelope)
    event = again.answer["data"]["event"]
    assert (event["rev"], event["key_id"], event["payload"]) == (4, WORKER.key_id, {"stage": "TASK"})


def test_a_signed_result_is_recorded_with_its_content(run: Run, folder: Path):
    with holdfast.open(f"sqlite:///{folder}/jobs.db", keys=[SERVER]) as ledger:
        enrol(ledger, [SERVER, WORKER])
        ledger.enqueue("tidy")
        [job] = ledger.claim("w-1", start=True)
        assert WORKER.secret is not None
        at = micros(ledger.now())
        statement = {
            "v": 1, "ledger": ledger.id, "job": job.id, "attempt": 1, "type": "succeeded", "at": at, "counter": at,
            "actor": f"worker:w-1#{job.fence.incarnation}", "payload": hashlib.sha256(b'{"result":{"rooms":2}}').hexdigest(),
        }  # fmt: skip
    (folder / "done.json").write_text(json.dumps(sign_envelope(statement, WORKER.secret)))
    words = ["events", "append", "done.json", "--db", "sqlite:///jobs.db", "--json"]
    without = run(*words)
    assert (without.code, without.answer["error_context"]["why"]) == (1, "payload")
    assert without.answer["suggested_action"] == "Send the content whose hash was signed, or sign the hash of this content."
    done = run(*words, "--content", '{"rooms": 2}')
    assert done.answer["data"]["event"]["payload"] == {"result": {"rooms": 2}}


def test_a_forged_event_is_refused(run: Run, folder: Path):
    _, envelope = robot_beat(folder)
    forged = json.loads(envelope)
    forged["payload"]["stage"] = "DONE"
    (folder / "beat.json").write_text(json.dumps(forged))
    done = run("events", "append", "beat.json", "--db", "sqlite:///jobs.db", "--json")
    assert (done.code, done.answer["error_code"]) == (1, "signature_invalid")
    assert done.answer["error_context"]["why"] == "signature"
    assert "exactly as it was signed" in done.answer["suggested_action"]
    assert run("events", "append", "nothing.json", "--db", "sqlite:///jobs.db").code == 2


def test_the_events_of_a_job_are_shown(run: Run, folder: Path):
    job, envelope = robot_beat(folder)
    (folder / "beat.json").write_text(envelope)
    run("events", "append", "beat.json", "--db", "sqlite:///jobs.db")
    shown = run("job", "events", job.id, "--db", "sqlite:///jobs.db")
    assert shown.code == 0
    words = shown.out.splitlines()[-1].split()
    assert (words[2], words[5][-1], words[-2:]) == ("heartbeat", "Z", ["w-1", WORKER.key_id])
    found = run("job", "events", job.id, "--db", "sqlite:///jobs.db", "--json").answer["data"]["events"]
    assert [event["type"] for event in found] == ["enqueued", "claimed", "started", "heartbeat"]
    assert run("job", "events", 99, "--db", "sqlite:///jobs.db").code == 1
