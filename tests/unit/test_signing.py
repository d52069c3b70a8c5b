"""Which events must be signed. A statement is valid once, for one command, attempt, incarnation and time."""

from hashlib import sha256
from typing import Any

import msgspec
import pytest

from holdfast.core import commands as c
from holdfast.core import payloads
from holdfast.core.decide import decide
from holdfast.core.limits import SKEW_US_MAX
from holdfast.core.model import SYSTEM, Actor, EventType, Fence, Policy, ReasonCode, Role, StallReason
from holdfast.core.payloads import BeatPayload, counter_of
from holdfast.core.policy import must_be_signed
from holdfast.errors import SignatureInvalid, ValidationError
from holdfast.proof.keys import KeyRole
from holdfast.proof.signing import check_stated, holder_statement, signed_payload, signer_of
from holdfast.proof.statements import Statement
from tests.unit.histories import CLIENT, ERROR, OPERATOR, WORKER, History, refusal_of
from tests.unit.signing import ALL, LEDGER, LIVENESS, SignedHistory, sealed

E = EventType
BEAT: dict[str, Any] = {"beat": BeatPayload(stage="A", progress=1)}


def signed(history: History) -> list[str]:
    return [event.type.value for event in history.events if event.statement is not None]


# Required signatures


def test_no_signature_is_required_without_a_policy():
    assert not any(must_be_signed(policy, kind) for policy in (None, Policy()) for kind in E)


def test_liveness_signs_three_event_types_and_all_signs_all_but_three():
    assert {kind for kind in E if must_be_signed(LIVENESS, kind)} == {E.HEARTBEAT, E.STALLED, E.RESUMED}
    assert set(E) - {kind for kind in E if must_be_signed(ALL, kind)} == {E.ENQUEUED, E.CLAIMED, E.STARTED}


def test_each_actor_has_its_signing_role():
    assert signer_of(WORKER) == (KeyRole.WORKER, "w-1")
    assert signer_of(SYSTEM) == signer_of(Actor(Role.SYSTEM, "w-1")) == (KeyRole.SERVER, None)
    assert signer_of(OPERATOR) == (KeyRole.OPERATOR, "ann")
    assert signer_of(CLIENT) == (KeyRole.OPERATOR, "shop")


@pytest.mark.parametrize(
    ("kind", "fields", "event"),
    [
        (c.Heartbeat, BEAT, "heartbeat"),
        (c.Stall, {}, "stalled"),
        (c.Release, {}, "stalled"),
        (c.Fail, {"error": ERROR}, "stalled"),
        (c.ClaimJob, {"token": "t", "policy": LIVENESS}, "heartbeat"),
    ],
)
def test_a_missing_signature_of_a_holder_is_named(kind: type[c.JobCommand], fields: dict[str, Any], event: str):
    found = refusal_of(SignedHistory(LIVENESS).start(), kind, signed=None, **fields)
    assert (found.code, found.context["why"], found.context["event"], found.retryable) == (
        "signature_invalid",
        "missing",
        event,
        False,
    )


# Signed events


def test_all_events_of_a_job_are_signed():
    history = SignedHistory().start().wait(1).beat(stage="A").stall().do(c.Resume).complete()
    assert signed(history) == ["heartbeat", "stalled", "resumed", "succeeded"]
    assert history.job.counter == history.counter
    assert history.events[-1].at == history.now


def test_one_statement_covers_everything_its_command_caused():
    history = SignedHistory().start().wait(61).beat()
    stalled, resumed, beat = history.events[-3:]
    assert (stalled.actor, resumed.statement, beat.statement) == (SYSTEM, beat.statement, resumed.statement)
    assert stalled.statement != beat.statement


@pytest.mark.parametrize(
    "fields",
    [
        {"error": ERROR},
        {"error": ERROR, "retryable": False},
        {"error": ERROR, "retryable": False, "reason_code": ReasonCode.PARSE_ERROR},
        {"error": ERROR, "retryable": True, "reason_code": ReasonCode.PARSE_ERROR},
    ],
)
def test_a_failure_is_signed_for_every_outcome(fields: dict[str, Any]):
    history = SignedHistory().start()
    before = len(history.events)
    history.do(c.Fail, **fields)
    assert all(event.statement for event in history.events[before:])


def test_each_attempt_starts_its_counter_again():
    history = SignedHistory().start().beat().do(c.Release)
    assert history.job.counter is not None
    assert history.claim().job.counter is None


def test_a_late_start_is_signed_as_a_return():
    history = SignedHistory(LIVENESS).claim().stall().do(c.Start)
    assert signed(history) == ["stalled", "resumed"]


def test_a_start_in_time_needs_no_signature():
    assert signed(SignedHistory(ALL).start()) == []


def test_a_renewing_claim_is_a_signed_beat():
    history = SignedHistory(LIVENESS).start().claim()
    assert history.types[-1] == "heartbeat"
    assert signed(history) == ["heartbeat"]


def test_counters_are_read_from_either_shape():
    assert counter_of(b'{"counter":5,"v":1}') == 5
    assert counter_of(b'{"binding":{"counter":6,"ledger":"x"}}') == 6
    assert counter_of(b'{"rev":6}') is None


# Statements that do not match


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"job_id": 8}, "job"),
        ({"attempt": 2}, "attempt"),
        ({"actor": Actor(Role.WORKER, "w-1", "boot-2")}, "actor"),
        ({"actor": Actor(Role.WORKER, "w-2", "boot-1")}, "actor"),
        ({"type": E.RESUMED}, "type"),
        ({"payload_sha256": "0" * 64}, "payload"),
        ({"counter": 0}, "counter"),
    ],
)
def test_a_statement_is_about_its_command(changes: dict[str, Any], why: str):
    history = SignedHistory().start().beat()
    fields = {"fence": history.fence, **BEAT}
    found = refusal_of(history, c.Heartbeat, **fields, signed=history.stated(c.Heartbeat, fields, **changes))
    assert (found.code, found.context["why"]) == ("signature_invalid", why)


@pytest.mark.parametrize("extra", [{"rev": 5}, {"reason": "WORKER_ERROR"}, {"policy": ALL}])
def test_a_beat_with_fields_of_other_statements_is_refused(extra: dict[str, Any]):
    history = SignedHistory().start().beat()
    assert history.job.rev == 4
    fields = {"fence": history.fence, **BEAT}
    given = history.stated(c.Heartbeat, fields)
    odd = msgspec.structs.replace(given, content=msgspec.structs.replace(given.content, **extra))
    assert refusal_of(history, c.Heartbeat, **fields, signed=odd).context["why"] in extra
    with pytest.raises(ValidationError) as caught:
        sealed(odd.content)
    assert caught.value.context["field"] in extra


@pytest.mark.parametrize("kind", [c.Heartbeat, c.ClaimJob])
def test_a_repeated_statement_is_refused(kind: type[c.JobCommand]):
    history = SignedHistory().start()
    fields: dict[str, Any] = BEAT if kind is c.Heartbeat else {"token": "t", "policy": ALL}
    fence = {"fence": history.fence} if kind is c.Heartbeat else {}
    given = history.stated(kind, fields | fence)
    history.do(kind, signed=given, **fields)
    found = refusal_of(history, kind, signed=given, **fields)
    assert (found.context["counter"], found.context["last"]) == (history.counter, history.counter)


def test_a_counter_far_ahead_of_its_time_is_refused():
    history = SignedHistory().start()
    fields = {"fence": history.fence, **BEAT}
    edge = history.now + SKEW_US_MAX
    given = history.stated(c.Heartbeat, fields, counter=edge + 1)
    found = refusal_of(history, c.Heartbeat, signed=given, **fields)
    assert (found.context["why"], found.context["last"]) == ("counter", None)
    history.do(c.Heartbeat, signed=history.stated(c.Heartbeat, fields, counter=edge), **fields)
    beyond = history.stated(c.Heartbeat, fields, counter=edge + 2)
    assert refusal_of(history, c.Heartbeat, signed=beyond, **fields).context["why"] == "counter"
    history.do(c.Heartbeat, signed=history.stated(c.Heartbeat, fields, counter=edge + 1), **fields)
    assert history.job.counter == edge + 1


@pytest.mark.parametrize("skew", [-SKEW_US_MAX, SKEW_US_MAX])
def test_the_signers_clock_may_be_five_minutes_off(skew: int):
    history = SignedHistory().start()
    fields = {"fence": history.fence, **BEAT}
    beyond = history.now + skew + (1 if skew > 0 else -1)
    late = history.stated(c.Heartbeat, fields, at=beyond)
    assert refusal_of(history, c.Heartbeat, signed=late, **fields).context["why"] == "skew"
    history.do(c.Heartbeat, signed=history.stated(c.Heartbeat, fields, at=history.now + skew), **fields)
    assert history.events[-1].at == history.now + skew


def test_a_reason_that_was_not_signed_is_refused():
    history = SignedHistory().start()
    fields: dict[str, Any] = {"fence": history.fence, "reason": StallReason.WORKER_ERROR}
    given = history.stated(c.Stall, fields, reason="TRANSIENT_ERROR")
    assert refusal_of(history, c.Stall, signed=given, **fields).context["why"] == "reason"


# A holder without its token


def test_a_signature_replaces_the_token():
    history = SignedHistory(Policy()).start()
    given = history.stated(c.Heartbeat, {"fence": history.fence, **BEAT})
    history.do(c.Heartbeat, fence=Fence(7, 1, ""), signed=given, **BEAT)
    assert signed(history) == ["heartbeat"]


@pytest.mark.parametrize("actor", [Actor(Role.WORKER, "w-2", "boot-1"), Actor(Role.WORKER, "w-1", "boot-2")])
def test_only_the_signature_of_the_holder_replaces_the_token(actor: Actor):
    history = SignedHistory(Policy()).start()
    given = history.stated(c.Heartbeat, {"fence": history.fence, **BEAT}, actor=actor)
    assert refusal_of(history, c.Heartbeat, fence=Fence(7, 1, ""), signed=given, **BEAT).code == "fence_lost"


def test_a_signature_does_not_replace_a_wrong_token():
    history = SignedHistory(Policy()).start()
    given = history.stated(c.Heartbeat, {"fence": history.fence, **BEAT})
    assert refusal_of(history, c.Heartbeat, fence=Fence(7, 1, "no"), signed=given, **BEAT).code == "fence_lost"


def test_a_signature_does_not_replace_an_ended_fence():
    history = SignedHistory(Policy()).start().do(c.Release)
    given = history.stated(c.Heartbeat, {"fence": Fence(7, 1, ""), **BEAT})
    assert refusal_of(history, c.Heartbeat, fence=Fence(7, 1, ""), signed=given, **BEAT).code == "fence_lost"


# Reports of other servers


def verdict(history: SignedHistory, **changes: Any) -> Statement:
    at, beat_at, lease = changes.get("at", history.now), history.job.last_beat_at, history.job.lease_expires_at
    assert beat_at is not None and lease is not None
    body = payloads.StalledPayload(
        holder="w-1", incarnation="boot-1", last_beat_at=beat_at, lease_expires_at=lease, detected_at=at
    ).encode()
    event = decide(history.job, c.Stall(actor=SYSTEM, job_id=7), history.now).events[0]
    assert at != history.now or event.payload == body
    said = Statement(
        ledger=LEDGER, job_id=7, attempt=1, type=E.STALLED, actor=SYSTEM, at=at, rev=event.rev, reason=event.reason,
        policy=event.policy, payload_sha256=sha256(body).hexdigest(),
    )  # fmt: skip
    return msgspec.structs.replace(said, **changes)


def test_a_servers_stall_report_has_its_own_signature():
    history = SignedHistory(LIVENESS).start().wait(31)
    given = sealed(verdict(history, at=history.now - 1))
    history.do(c.Stall, actor=SYSTEM, reason=StallReason.NO_HEARTBEAT, signed=given)
    assert (history.events[-1].statement, history.events[-1].at) == (given.statement, history.now - 1)
    assert history.job.counter is None


@pytest.mark.parametrize(
    ("changes", "why"), [({"rev": 9}, "rev"), ({"policy": ALL}, "policy"), ({"attempt": 2}, "attempt"), ({"at": 5}, "skew")]
)
def test_a_servers_stall_report_must_match_the_event(changes: dict[str, Any], why: str):
    history = SignedHistory(LIVENESS).start().wait(31)
    with pytest.raises(SignatureInvalid) as caught:
        history.do(c.Stall, actor=SYSTEM, reason=StallReason.NO_HEARTBEAT, signed=sealed(verdict(history, **changes)))
    assert caught.value.context["why"] == why


def test_the_comment_of_an_acknowledged_cancel_is_signed() -> None:
    history = History().start().cancel()
    command = c.AcknowledgeCancel(actor=WORKER, job_id=7, fence=history.fence, reason="cleaned up")
    assert signed_payload(command) == payloads.CancelledPayload(comment="cleaned up").encode()


def test_a_signature_has_signer_time_and_attempt() -> None:
    history = SignedHistory().start()
    signed = history.stated(c.Release, {"fence": history.fence})
    assert (signed.signer, signed.signed_at, signed.attempt, signed.counter) == (WORKER, history.now, 1, history.counter)


# A statement that came with a request


@pytest.mark.parametrize(
    ("changed", "why"),
    [({"job_id": 2}, "job"), ({"attempt": 2}, "attempt"), ({"payload_sha256": "0" * 64}, "payload")],
)
def test_a_statement_is_that_of_its_request(changed: dict[str, Any], why: str):
    command = c.Heartbeat(actor=WORKER, job_id=1, fence=Fence(1, 1, "t", WORKER.name, WORKER.incarnation), **BEAT)
    said = holder_statement(LEDGER, command, WORKER, 1, counter=7, at=0)
    check_stated(sealed(said), command, WORKER, 1)
    check_stated(sealed(msgspec.structs.replace(said, counter=9)), command, WORKER, 1)
    with pytest.raises(SignatureInvalid) as refused:
        check_stated(sealed(msgspec.structs.replace(said, **changed)), command, WORKER, 1)
    assert refused.value.context["why"] == why
