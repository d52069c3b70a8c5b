"""append: events that other processes have signed are accepted once, in this ledger and for this attempt only."""

import json
from hashlib import sha256
from typing import Any

import msgspec
import pytest

from holdfast import Fence, HoldfastError, Ledger
from holdfast.core.model import SYSTEM, EventType, Policy
from holdfast.core.payloads import StalledPayload
from holdfast.proof.envelopes import robot_envelope, server_resume_envelope, server_stall_envelope, sign_envelope
from holdfast.proof.keys import KeyFile
from holdfast.testing import ManualClock
from tests.contract import builders as b
from tests.contract.builders import Made, refused_without_trace
from tests.contract.conftest import OpenKeyed
from tests.property.model import micros
from tests.support.signers import ALL_KEYS, LIVENESS, SERVER, WORKER, key

WINDOW = {"resume_window": "60s"}
MINUTE = 60_000_000


@pytest.fixture
def ledger(signing: Ledger, open_keyed: OpenKeyed) -> Ledger:
    """A ledger with the server's key and without the keys of workers."""
    return open_keyed([SERVER])


def beat_envelope(ledger: Ledger, made: Made, counter: int = 1, *, signer: KeyFile = WORKER, **changes: Any) -> dict[str, Any]:
    """An envelope of a robot, in the form for robots."""
    given: dict[str, Any] = {
        "ledger_id": ledger.id,
        "job_id": made.id,
        "attempt": made.fence.attempt,
        "robot": "w-1",
        "incarnation": made.fence.incarnation,
        "counter": counter,
        "at": micros(ledger.now()),
    }
    assert signer.secret is not None
    return robot_envelope(signer.secret, **given | changes)


def own_envelope(
    ledger: Ledger, made: Made, kind: str, *, signer: KeyFile = WORKER, body: bytes = b"", **changes: Any
) -> dict[str, Any]:
    """An envelope in Holdfast's own form."""
    fields: dict[str, Any] = {
        "v": 1,
        "ledger": ledger.id,
        "job": made.id,
        "attempt": made.fence.attempt,
        "type": kind,
        "actor": f"worker:w-1#{made.fence.incarnation}",
        "counter": 1,
        "at": micros(ledger.now()),
        "payload": sha256(body).hexdigest(),
    }
    fields = {name: value for name, value in (fields | changes).items() if value is not None}
    assert signer.secret is not None
    return sign_envelope(fields, signer.secret)


# Accepted


@pytest.mark.parametrize("policy", [{}, LIVENESS], ids=["none", "liveness"])
def test_a_robots_beat_renews_its_lease(ledger: Ledger, clock: ManualClock, policy: dict[str, str]):
    made = b.running(ledger, policy=policy)
    clock.advance(30)
    event = ledger.append(beat_envelope(ledger, made, stage="TASK", progress=3, assist_requested=False))
    job = ledger.get(made.id)
    assert (event.type, event.rev, event.key_id, event.actor) == (
        "heartbeat",
        job.rev,
        WORKER.key_id,
        f"worker:w-1#{made.fence.incarnation}",
    )
    assert (job.stage, job.progress, job.last_heartbeat_at) == ("TASK", 3, event.received_at)
    assert event == ledger.events(made.id)[-1]
    assert ledger.check(made.id) == []


@pytest.mark.parametrize("form", [json.dumps, lambda found: json.dumps(found).encode(), dict], ids=["str", "bytes", "mapping"])
def test_an_envelope_is_an_object_or_its_text(ledger: Ledger, form: Any):
    made = b.running(ledger, policy=LIVENESS)
    assert ledger.append(form(beat_envelope(ledger, made))).type == "heartbeat"


def test_the_signers_time_is_kept_beside_the_ledgers(ledger: Ledger, clock: ManualClock):
    made = b.running(ledger, policy=LIVENESS)
    event = ledger.append(beat_envelope(ledger, made, at=micros(ledger.now()) - 4 * MINUTE))
    assert (event.received_at - event.at).total_seconds() == 240


def test_a_robot_resumes_its_job_with_its_own_signature(ledger: Ledger):
    made = _stalled(ledger)
    event = ledger.append(beat_envelope(ledger, made, kind=EventType.RESUMED))
    assert (event.type, event.to_status) == ("resumed", "running")
    assert ledger.check(made.id) == []


def _stalled(ledger: Ledger) -> Made:
    made = b.running(ledger, policy=WINDOW)
    ledger.stall(made.fence)
    return made


def test_a_beat_of_a_stalled_job_is_evidence_of_life(ledger: Ledger):
    made = _stalled(ledger)
    assert ledger.append(beat_envelope(ledger, made)).to_status == "stalled"


def test_a_late_beat_is_recorded_in_order(ledger: Ledger, clock: ManualClock):
    made = b.running(ledger, policy=LIVENESS)
    clock.advance(61)
    ledger.append(beat_envelope(ledger, made))
    assert b.types(ledger, made.id, 3) == ["stalled", "resumed", "heartbeat"]
    assert ledger.check(made.id) == []


def test_holdfasts_form_states_the_hash_of_its_content(ledger: Ledger):
    made = b.running(ledger, policy={"signed": "all"})
    ledger.append(
        own_envelope(ledger, made, "heartbeat", body=b'{"stage":"A","progress":2}'), content={"stage": "A", "progress": 2}
    )
    assert (ledger.get(made.id).stage, ledger.get(made.id).progress) == ("A", 2)
    ledger.append(own_envelope(ledger, made, "succeeded", counter=2, body=b'{"result":{"n":1}}'), content={"n": 1})
    assert ledger.get(made.id).result == {"n": 1}
    assert ledger.check(made.id) == []


@pytest.mark.parametrize(
    ("kind", "changes", "content", "then"),
    [
        ("stalled", {"reason": "WORKER_ERROR"}, None, "stalled"),
        ("stalled", {"reason": "WORKER_ERROR", "body": b'{"error":{"message":"hot"}}'}, {"message": "hot"}, "stalled"),
        ("requeued", {}, None, "queued"),
    ],
)
def test_a_holder_may_give_up_by_its_signature(ledger: Ledger, kind: str, changes: dict[str, Any], content: Any, then: str):
    made = b.running(ledger, policy=WINDOW | {"signed": "all"})
    given = {} if content is None else {"content": content}
    ledger.append(own_envelope(ledger, made, kind, **changes), **given)
    assert ledger.get(made.id).status == then
    assert ledger.check(made.id) == []


def test_a_holder_acknowledges_a_cancel_by_its_signature(signing: Ledger, ledger: Ledger):
    made = b.aborting(signing, policy={"signed": "all"})
    assert ledger.append(own_envelope(ledger, made, "cancelled")).to_status == "cancelled"
    assert ledger.check(made.id) == []


# Servers


def verdict(ledger: Ledger, made: Made, **changes: Any) -> dict[str, Any]:
    job = ledger.get(made.id).record
    assert job.owner is not None and job.incarnation is not None
    assert job.last_beat_at is not None and job.lease_expires_at is not None
    body = StalledPayload(
        holder=job.owner,
        incarnation=job.incarnation,
        last_beat_at=job.last_beat_at,
        lease_expires_at=job.lease_expires_at,
        detected_at=changes.get("at", micros(ledger.now())),
    ).encode()
    policy = msgspec.to_builtins(job.policy)
    given = {"actor": str(SYSTEM), "counter": None, "rev": job.rev + 1, "reason": "NO_HEARTBEAT", "policy": policy, "body": body}
    return own_envelope(ledger, made, "stalled", **{"signer": SERVER} | given | changes)


def test_a_server_may_report_a_silent_holder_as_stalled(ledger: Ledger, clock: ManualClock):
    made = b.running(ledger, policy=WINDOW | LIVENESS)
    with refused_without_trace(ledger, "not_stalled_yet"):
        ledger.append(verdict(ledger, made))
    clock.advance(31)
    event = ledger.append(verdict(ledger, made, at=micros(ledger.now()) - 1))
    assert (event.type, event.actor, event.reason, event.key_id) == ("stalled", "system:ledger", "NO_HEARTBEAT", SERVER.key_id)
    assert event.payload["detected_at"] == micros(event.at) == micros(event.received_at) - 1
    assert ledger.append(json.loads(json.dumps(envelope_of(event)))) == event
    assert ledger.check(made.id) == []


def robot_form_stall(ledger: Ledger, made: Made, **changes: Any) -> dict[str, Any]:
    job = ledger.get(made.id).record
    assert job.policy is not None
    signer: KeyFile = changes.pop("signer", SERVER)
    assert signer.secret is not None
    given: dict[str, Any] = {
        "ledger_id": ledger.id,
        "job_id": made.id,
        "attempt": made.fence.attempt,
        "rev": job.rev + 1,
        "server": "hq",
        "robot": "w-1",
        "at": micros(ledger.now()),
        "last_beat_at": job.last_beat_at,
        "heartbeat_interval_ms": job.policy.heartbeat_interval_ms,
        "stall_after_ms": job.policy.stall_after_ms,
    }
    return server_stall_envelope(signer.secret, **given | changes)


def test_a_servers_stall_report_in_the_form_for_robots(ledger: Ledger, clock: ManualClock):
    made = b.running(ledger, tier="in_home", policy=LIVENESS)
    clock.advance(90)
    with refused_without_trace(ledger, "not_stalled_yet"):
        ledger.append(robot_form_stall(ledger, made))
    clock.advance(1)
    event = ledger.append(robot_form_stall(ledger, made))
    assert (event.type, event.actor, event.reason, event.key_id) == ("stalled", "system:hq", "NO_HEARTBEAT", SERVER.key_id)
    assert (event.payload["holder"], event.payload["detected_at"]) == ("w-1", micros(event.at))
    assert ledger.check(made.id) == []


WRONG_STALLS: list[dict[str, Any]] = [
    {"rev": 9},
    {"attempt": 2},
    {"robot": "w-2"},
    {"reason": "LEASE_EXPIRED"},
    {"last_beat_at": 1_000_000},
    {"stall_after_ms": 1},
    {"heartbeat_interval_ms": 1},
    {"at": 1_000_000},
    {"signer": WORKER},
]


def test_a_servers_stall_report_must_match_the_current_silence(ledger: Ledger, clock: ManualClock):
    made = b.running(ledger, tier="in_home", policy=LIVENESS)
    clock.advance(91)
    for changes in WRONG_STALLS:
        with refused_without_trace(ledger, "signature_invalid"):
            ledger.append(robot_form_stall(ledger, made, **changes))


def robot_form_resume(ledger: Ledger, made: Made, **changes: Any) -> dict[str, Any]:
    """A server's JOB_EXECUTION_RESUMED."""
    signer: KeyFile = changes.pop("signer", SERVER)
    assert signer.secret is not None
    given: dict[str, Any] = {
        "ledger_id": ledger.id,
        "job_id": made.id,
        "attempt": made.fence.attempt,
        "rev": ledger.get(made.id).rev + 1,
        "server": "hq",
        "robot": "w-1",
        "at": micros(ledger.now()),
    }
    return server_resume_envelope(signer.secret, **given | changes)


def own_form_resume(ledger: Ledger, made: Made, **changes: Any) -> dict[str, Any]:
    given = {"actor": "system:hq", "counter": None, "rev": ledger.get(made.id).rev + 1, "signer": SERVER}
    return own_envelope(ledger, made, "resumed", **given | changes)


def _silent(ledger: Ledger, clock: ManualClock) -> Made:
    """A job that a server has reported as stalled."""
    made = b.running(ledger, tier="in_home", policy=LIVENESS)
    clock.advance(91)
    ledger.append(robot_form_stall(ledger, made))
    return made


@pytest.mark.parametrize("returned", [robot_form_resume, own_form_resume], ids=["for robots", "own"])
def test_a_server_resumes_a_robot_that_has_beaten_since_the_stall(ledger: Ledger, clock: ManualClock, returned: Any):
    made = _silent(ledger, clock)
    with refused_without_trace(ledger, "invalid_transition"):
        ledger.append(returned(ledger, made))
    ledger.append(beat_envelope(ledger, made))
    clock.advance(1)
    envelope = returned(ledger, made)
    event = ledger.append(envelope)
    assert (event.type, event.to_status, event.actor, event.key_id) == ("resumed", "running", "system:hq", SERVER.key_id)
    job = ledger.get(made.id)
    assert (job.status, job.phase, job.owner, job.attempt) == ("running", "executing", "w-1", 1)
    assert ledger.append(envelope) == event
    ledger.append(beat_envelope(ledger, made, 2))
    with refused_without_trace(ledger, "invalid_transition"):
        ledger.append(envelope)
    assert ledger.check(made.id) == []


@pytest.mark.parametrize("returned", [robot_form_resume, own_form_resume], ids=["for robots", "own"])
@pytest.mark.parametrize("changes", [{"rev": 9}, {"attempt": 2}, {"at": 1_000_000}, {"signer": WORKER}])
def test_a_servers_resume_report_must_match_the_current_stall(
    ledger: Ledger, clock: ManualClock, returned: Any, changes: dict[str, Any]
):
    made = _silent(ledger, clock)
    ledger.append(beat_envelope(ledger, made))
    with refused_without_trace(ledger, "signature_invalid"):
        ledger.append(returned(ledger, made, **changes))


def test_a_servers_resume_report_names_the_stalled_robot(ledger: Ledger, clock: ManualClock):
    made = _silent(ledger, clock)
    ledger.append(beat_envelope(ledger, made))
    with refused_without_trace(ledger, "signature_invalid") as caught:
        ledger.append(robot_form_resume(ledger, made, robot="w-2"))
    assert caught.value.context["why"] == "robot"


def test_a_server_does_not_resume_a_job_that_never_started(ledger: Ledger, clock: ManualClock):
    made = b.claimed(ledger, policy=WINDOW | LIVENESS)
    clock.advance(31)
    ledger.stall(made.id)
    ledger.append(beat_envelope(ledger, made))
    with refused_without_trace(ledger, "invalid_transition"):
        ledger.append(robot_form_resume(ledger, made))


def test_a_server_does_not_resume_a_running_job(ledger: Ledger):
    made = b.running(ledger, policy=LIVENESS)
    with refused_without_trace(ledger, "invalid_transition"):
        ledger.append(robot_form_resume(ledger, made))


@pytest.mark.parametrize("said", [robot_form_resume, robot_form_stall])
def test_a_servers_envelope_has_no_content(ledger: Ledger, clock: ManualClock, said: Any):
    made = b.running(ledger, tier="in_home", policy=LIVENESS)
    clock.advance(91)
    with refused_without_trace(ledger, "validation_error"):
        ledger.append(said(ledger, made), content={"message": "hot"})


def envelope_of(event: Any) -> dict[str, Any]:
    return json.loads(event.statement) | {"keyId": event.key_id, "signature": event.signature}


@pytest.mark.parametrize("changes", [{"rev": 9}, {"reason": "LEASE_EXPIRED"}, {"body": b"{}"}, {"signer": WORKER}])
def test_a_servers_stall_report_must_have_the_current_times(ledger: Ledger, clock: ManualClock, changes: dict[str, Any]):
    made = b.running(ledger, policy=WINDOW | LIVENESS)
    clock.advance(31)
    with refused_without_trace(ledger, "signature_invalid"):
        ledger.append(verdict(ledger, made, **changes))


# Refused


def test_the_newest_envelope_may_be_sent_again_and_no_older_one(ledger: Ledger):
    made = b.running(ledger, policy=LIVENESS)
    first, second = beat_envelope(ledger, made, 1), beat_envelope(ledger, made, 2)
    event = ledger.append(first)
    assert ledger.append(first) == event
    ledger.append(second)
    with refused_without_trace(ledger, "signature_invalid") as caught:
        ledger.append(first)
    assert caught.value.context["why"] == "counter"


def test_an_envelope_may_be_sent_again_after_the_end_of_the_job(ledger: Ledger):
    made = b.running(ledger, policy={"signed": "all"})
    envelope = own_envelope(ledger, made, "succeeded", body=b'{"result":null}')
    assert ledger.append(envelope) == ledger.append(envelope)
    with refused_without_trace(ledger, "signature_invalid"):
        ledger.append(own_envelope(ledger, made, "succeeded", counter=2, body=b'{"result":1}'), content=2)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"ledger_id": "elsewhere"}, "signature_invalid"),
        ({"attempt": 2}, "fence_lost"),
        ({"incarnation": "another-boot"}, "fence_lost"),
        ({"robot": "w-2", "signer": key("worker", "w-2")}, "fence_lost"),
        ({"robot": "w-2"}, "signature_invalid"),
        ({"signer": key("worker", "w-1", 7)}, "signature_invalid"),
        ({"signer": SERVER}, "signature_invalid"),
        ({"at": 1_000_000}, "signature_invalid"),
    ],
)
def test_a_beat_is_valid_for_one_ledger_attempt_incarnation_and_time(
    signing: Ledger, ledger: Ledger, changes: dict[str, Any], code: str
):
    other = key("worker", "w-2")
    signing.enrol_key(other.public, role="worker", name="w-2")
    made = b.running(ledger, policy=LIVENESS)
    with refused_without_trace(ledger, code):
        ledger.append(beat_envelope(ledger, made, **changes))


@pytest.mark.parametrize("extra", [{"rev": 4}, {"reason": "x"}, {"policy": msgspec.to_builtins(Policy())}])
def test_a_beat_with_fields_of_other_statements_is_refused(ledger: Ledger, extra: dict[str, Any]):
    made = b.running(ledger, policy=LIVENESS)
    with refused_without_trace(ledger, "validation_error") as caught:
        ledger.append(own_envelope(ledger, made, "heartbeat", **extra))
    assert caught.value.context["field"] in extra


def test_a_counter_far_ahead_affects_no_other_worker(signing: Ledger, ledger: Ledger):
    made, other = b.running(ledger, policy=LIVENESS), b.running(ledger, policy=LIVENESS)
    for counter in (2**53 - 1, micros(ledger.now()) + 5 * MINUTE + 1):
        with refused_without_trace(ledger, "signature_invalid") as caught:
            ledger.append(beat_envelope(ledger, made, counter))
        assert caught.value.context["why"] == "counter"
    ledger.append(beat_envelope(ledger, made, micros(ledger.now()) + 5 * MINUTE))
    signing.heartbeat(made.fence)
    signing.heartbeat(other.fence)
    signing.heartbeat(made.fence)
    assert ledger.check(made.id) == ledger.check(other.id) == []


@pytest.mark.parametrize("minutes", [-5, 5])
def test_clocks_may_differ_by_five_minutes(ledger: Ledger, minutes: int):
    made = b.running(ledger, policy=LIVENESS)
    now = micros(ledger.now())
    with refused_without_trace(ledger, "signature_invalid") as caught:
        ledger.append(beat_envelope(ledger, made, at=now + minutes * MINUTE + (1 if minutes > 0 else -1)))
    assert caught.value.context["why"] == "skew"
    ledger.append(beat_envelope(ledger, made, at=now + minutes * MINUTE))


def test_an_envelope_changed_to_another_job_is_refused(ledger: Ledger):
    made, other = b.running(ledger, policy=LIVENESS), b.running(ledger, policy=LIVENESS)
    envelope = beat_envelope(ledger, made)
    envelope["payload"]["jobId"] = str(other.id)
    with refused_without_trace(ledger, "signature_invalid") as caught:
        ledger.append(envelope)
    assert caught.value.context["why"] == "signature"


def test_an_old_signature_is_not_accepted_for_a_later_attempt(ledger: Ledger):
    made = b.running(ledger, policy={"attempts_max": 3})
    envelope = beat_envelope(ledger, made)
    ledger.release(made.fence)
    with refused_without_trace(ledger, "fence_lost"):
        ledger.append(envelope)
    b.claim(ledger, made.id)
    with refused_without_trace(ledger, "fence_lost"):
        ledger.append(envelope)


def test_content_that_was_not_signed_is_refused(ledger: Ledger):
    made = b.running(ledger, policy=LIVENESS)
    for content in ({"stage": "B"}, {}, {"stage": "A", "progress": 1}):
        with refused_without_trace(ledger, "signature_invalid"):
            ledger.append(own_envelope(ledger, made, "heartbeat", body=b'{"stage":"A"}'), content=content)


@pytest.mark.parametrize(
    "envelope",
    [
        b"",
        b"[]",
        "{",
        {"keyId": "x", "signature": ""},
        7,
        b'{"a":1,"a":2}',
        b"[" * 100,
        b" " * 20_000,
        '{"a":"\ud800"}',
    ],
)
def test_invalid_envelopes_are_refused(ledger: Ledger, envelope: Any):
    with pytest.raises(HoldfastError) as caught:
        ledger.append(envelope)
    assert caught.value.code in ("validation_error", "limit_exceeded")


@pytest.mark.parametrize("kind", ["failed"])
def test_verbs_without_a_statement_form_are_refused(ledger: Ledger, kind: str):
    made = b.running(ledger, policy=LIVENESS)
    with refused_without_trace(ledger, "validation_error"):
        ledger.append(own_envelope(ledger, made, kind))


def test_an_empty_token_without_a_signature_is_refused(ledger: Ledger, signing: Ledger):
    made = b.running(signing)
    for each in (ledger, signing):
        with refused_without_trace(each, "fence_lost"):
            each.heartbeat(Fence(made.id, 1, "", "w-1", made.fence.incarnation))


def test_keys_of_this_process_do_not_sign_for_others(signing: Ledger):
    """The process has the worker's key, but still refuses an old envelope from another process."""
    assert WORKER in ALL_KEYS
    made = b.running(signing, policy=LIVENESS)
    signing.append(beat_envelope(signing, made, 2))
    with refused_without_trace(signing, "signature_invalid"):
        signing.append(beat_envelope(signing, made, 1))
