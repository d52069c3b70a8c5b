"""Escalation: the outbox sends a message when a job needs an operator."""

from datetime import datetime
from typing import Any

from holdfast import Ledger
from holdfast.services import CallableSink, Relay
from holdfast.testing import ManualClock
from tests.property.model import micros
from tests.support.near import near


def escalations(ledger: Ledger) -> list[dict[str, Any]]:
    """The messages of a sink from the first event on, without plain changes of status."""
    heard: list[dict[str, Any]] = []
    with Relay(
        near(ledger), [CallableSink(lambda message: heard.append(message.as_dict()), name="pager", start="beginning")]
    ) as relay:
        while relay.tick():
            pass
    ledger.drop_sink("pager")
    return [message for message in heard if message["data"]["message"] == "ESCALATION_NEEDED"]


def test_a_request_for_assistance_escalates_once(ledger: Ledger) -> None:
    ledger.enqueue("mop", tier="in_home")
    [held] = ledger.claim("robot-1", start=True)
    for wanted in (False, True, True, None, False, True):
        ledger.heartbeat(held.fence, assist_requested=wanted)
    found = escalations(ledger)
    assert [message["data"]["reason"] for message in found] == ["ASSIST_REQUESTED"] * 2
    assert [message["data"]["job_id"] for message in found] == [held.id] * 2
    assert len({message["id"] for message in found}) == 2


def test_a_stall_escalates_if_operators_cover_the_job(ledger: Ledger, clock: ManualClock) -> None:
    covered = ledger.enqueue("lift", policy={"requires_operator_coverage": True})
    ledger.enqueue("mop")
    assert len(ledger.claim("robot-1", limit=2, start=True)) == 2
    clock.advance(31)
    ledger.sweep()
    [message] = escalations(ledger)
    assert (message["data"]["job_id"], message["data"]["reason"]) == (covered.id, "NO_HEARTBEAT")
    stalled = ledger.events(covered.id, types=["stalled"])[0]
    assert message["id"] == stalled.id


def test_a_release_and_a_transient_error_do_not_escalate(ledger: Ledger) -> None:
    ledger.enqueue("lift", policy={"requires_operator_coverage": True, "backoff_base": 0})
    [held] = ledger.claim("robot-1", start=True)
    ledger.release(held.fence)
    [held] = ledger.claim("robot-1", start=True)
    ledger.fail(held.fence, "the lift is busy")
    [held] = ledger.claim("robot-1", start=True)
    ledger.stall(held.fence, reason="ROBOT_ERROR")
    assert [message["data"]["reason"] for message in escalations(ledger)] == ["WORKER_ERROR"]
    reasons = [event.reason for event in ledger.events(held.id, types=["stalled"])]
    assert reasons == ["RELEASED", "TRANSIENT_ERROR", "WORKER_ERROR"]


def test_an_escalation_names_robot_tier_silence_and_command(ledger: Ledger, clock: ManualClock) -> None:
    covered = ledger.enqueue("lift", tier="in_home", policy={"requires_operator_coverage": True})
    [held] = ledger.claim("robot-1", start=True, incarnation="boot-7")
    clock.advance(40)
    beat = ledger.heartbeat(held.fence)
    clock.advance(91)
    ledger.sweep()
    [stalled] = ledger.events(covered.id, types=["stalled"])
    assert (stalled.payload["holder"], stalled.payload["incarnation"]) == ("robot-1", "boot-7")
    assert (stalled.payload["last_beat_at"], stalled.payload["detected_at"]) == (micros(beat.at), micros(stalled.received_at))
    assert stalled.payload["policy"]["stall_after_ms"] == 90_000
    [message] = escalations(ledger)
    data = message["data"]
    assert (data["holder"], data["incarnation"], data["tier"], data["silent_ms"]) == ("robot-1", "boot-7", "in_home", 91_000)
    assert datetime.fromisoformat(data["last_beat_at"]) == beat.at
    assert datetime.fromisoformat(data["detected_at"]) == stalled.received_at
    assert data["policy"] == stalled.payload["policy"]
    assert data["commands"][0]["command"] == f"holdfast explain {covered.id}"


def test_the_tier_selects_the_policy(ledger: Ledger) -> None:
    ledger.set_policy(tier="hospital", heartbeat_interval="5s", requires_operator_coverage=True)
    for tier in ("in_home", "office_after_hours", "hospital"):
        ledger.enqueue("mop", tier=tier)
    ledger.enqueue("mop")
    held = ledger.claim("robot-1", limit=4)
    policies = [job.policy for job in held]
    assert [policy.heartbeat_interval_ms for policy in policies if policy] == [30_000, 60_000, 5_000, 10_000]
    assert [policy.requires_operator_coverage for policy in policies if policy] == [False, False, True, False]
