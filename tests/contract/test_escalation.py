"""Operators are told when a job needs them: through the outbox, from the events themselves."""

from typing import Any

from holdfast import Ledger
from holdfast.services import CallableSink, Relay
from holdfast.testing import ManualClock


def told(ledger: Ledger) -> list[dict[str, Any]]:
    """What a sink that begins at the beginning hears by now, without the plain changes of status."""
    heard: list[dict[str, Any]] = []
    with Relay(ledger, [CallableSink(lambda message: heard.append(message.as_dict()), name="ears", start="beginning")]) as relay:
        while relay.tick():
            pass
    ledger.drop_sink("ears")
    return [message for message in heard if message["data"]["message"] == "ESCALATION_NEEDED"]


def test_a_wish_for_assistance_is_told_once_when_it_turns_true(ledger: Ledger) -> None:
    ledger.enqueue("mop", tier="in_home")
    [held] = ledger.claim("robot-1", start=True)
    assert held.fence is not None
    for wanted in (False, True, True, None, False, True):
        ledger.heartbeat(held.fence, assist_requested=wanted)
    found = told(ledger)
    assert [message["data"]["reason"] for message in found] == ["ASSIST_REQUESTED"] * 2
    assert [message["data"]["job_id"] for message in found] == [held.id] * 2
    assert len({message["id"] for message in found}) == 2


def test_a_stall_is_told_where_operators_cover_the_job(ledger: Ledger, clock: ManualClock) -> None:
    covered = ledger.enqueue("lift", policy={"requires_operator_coverage": True})
    ledger.enqueue("mop")
    assert len(ledger.claim("robot-1", limit=2, start=True)) == 2
    clock.advance(31)
    ledger.sweep()
    [message] = told(ledger)
    assert (message["data"]["job_id"], message["data"]["reason"]) == (covered.id, "NO_HEARTBEAT")
    stalled = ledger.events(covered.id, types=["stalled"])[0]
    assert message["id"] == stalled.id


def test_a_tier_chooses_the_policy(ledger: Ledger) -> None:
    ledger.set_policy(tier="hospital", heartbeat_interval="5s", requires_operator_coverage=True)
    for tier in ("in_home", "office_after_hours", "hospital"):
        ledger.enqueue("mop", tier=tier)
    ledger.enqueue("mop")
    held = ledger.claim("robot-1", limit=4)
    policies = [job.policy for job in held]
    assert [policy.heartbeat_interval_ms for policy in policies if policy] == [30_000, 60_000, 5_000, 10_000]
    assert [policy.requires_operator_coverage for policy in policies if policy] == [False, False, True, False]
