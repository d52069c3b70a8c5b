"""Policies that require signatures: who signs what, and that nothing else is accepted."""

from typing import Any

import pytest

from holdfast import Event, Fence, Ledger
from holdfast.agent import Agent
from holdfast.errors import Forbidden, SignatureInvalid
from holdfast.services.sweeper import SweepService
from holdfast.testing import ManualClock
from tests.contract import builders as b
from tests.contract.builders import Made, refused_without_trace
from tests.contract.conftest import OpenKeyed
from tests.support.signers import ALL, ALL_KEYS, LIVENESS, SERVER, WORKER, key

WINDOW = {"resume_window": "60s"}


@pytest.fixture
def bare(signing: Ledger, open_keyed: OpenKeyed) -> Ledger:
    """The same ledger in a process without keys."""
    return open_keyed(())


@pytest.fixture
def robot(signing: Ledger, open_keyed: OpenKeyed) -> Ledger:
    """The same ledger in a process that has only the worker's key."""
    return open_keyed([WORKER])


def signers(ledger: Ledger, job_id: int) -> list[tuple[str, str | None]]:
    """The signer of each event."""
    names = {each.key_id: each.name for each in ALL_KEYS}
    return [(event.type.value, names.get(event.key_id or "")) for event in ledger.events(job_id)]


def newest(ledger: Ledger, job_id: int) -> Event:
    return ledger.events(job_id)[-1]


# Holders


@pytest.mark.parametrize("policy", [LIVENESS, ALL], ids=["liveness", "all"])
def test_the_events_of_a_job_are_signed_as_the_policy_requires(signing: Ledger, policy: dict[str, str]):
    made = b.running(signing, policy=policy)
    signing.heartbeat(made.fence, stage="TASK", progress=3)
    signing.heartbeat_many([made.fence])
    signing.complete(made.fence, {"ok": True})
    end = "w-1" if policy is ALL else None
    assert signers(signing, made.id) == [
        ("enqueued", None), ("claimed", None), ("started", None), ("heartbeat", "w-1"), ("heartbeat", "w-1"), ("succeeded", end),
    ]  # fmt: skip
    assert signing.check(made.id) == []


def test_an_agent_signs_its_events(signing: Ledger, bare: Ledger):
    made = b.queued(signing, policy=ALL)
    agent = Agent(signing, "w-1")
    agent.start(made.id)
    agent.resume()
    agent.heartbeat(made.id, progress=3, request_id="r1")
    with refused_without_trace(bare, "signature_invalid"):
        Agent(bare, "w-1").heartbeat(made.id, progress=4)
    agent.complete(made.id, {"ok": True})
    assert signers(signing, made.id) == [
        ("enqueued", None), ("claimed", None), ("started", None), ("heartbeat", "w-1"), ("heartbeat", "w-1"),
        ("succeeded", "w-1"),
    ]  # fmt: skip
    assert signing.check(made.id) == []


def test_a_signed_event_has_its_statement(signing: Ledger):
    made = b.running(signing, policy=LIVENESS)
    signing.heartbeat(made.fence)
    found = newest(signing, made.id)
    assert (found.key_id, found.at) == (WORKER.key_id, found.received_at)
    assert found.signature is not None
    assert found.statement is not None
    assert f'"job":{made.id}' in found.statement


@pytest.mark.parametrize("policy", [LIVENESS, ALL], ids=["liveness", "all"])
@pytest.mark.parametrize(
    ("build", "verb", "options"),
    [
        (b.running, "heartbeat", {}),
        (b.claimed, "heartbeat", {}),
        (b.running, "stall", {}),
        (b.claimed, "stall", {"error": "hot"}),
        (b.running_stalled, "resume", {}),
        (b.running, "release", {}),
        (b.running, "fail", {"error": "x"}),
    ],
)
def test_a_holder_without_its_key_is_refused(
    signing: Ledger, bare: Ledger, policy: dict[str, str], build: Any, verb: str, options: dict[str, Any]
):
    made: Made = build(signing, policy=WINDOW | policy)
    with refused_without_trace(bare, "signature_invalid") as caught:
        getattr(bare, verb)(made.fence, **options)
    assert caught.value.context["why"] == "missing"
    assert "keys=" in caught.value.action
    getattr(signing, verb)(made.fence, **options)
    assert signing.check(made.id) == []


@pytest.mark.parametrize(
    ("build", "verb", "options"),
    [
        (b.running, "complete", {}),
        (b.running, "complete", {"gate": True}),
        (b.running, "fail", {"error": "x", "retryable": False}),
        (b.running, "fail", {"error": "x", "retryable": False, "reason_code": "parse_error"}),
        (b.aborting, "acknowledge_cancel", {}),
        (b.aborting, "fail", {"error": "x"}),
    ],
)
def test_ends_are_signed_only_if_the_policy_is_all(signing: Ledger, bare: Ledger, build: Any, verb: str, options: dict[str, Any]):
    free, bound = build(signing, policy=LIVENESS), build(signing, policy=ALL)
    getattr(bare, verb)(free.fence, **options)
    assert newest(bare, free.id).key_id is None
    with refused_without_trace(bare, "signature_invalid"):
        getattr(bare, verb)(bound.fence, **options)
    getattr(signing, verb)(bound.fence, **options)
    assert newest(bare, bound.id).key_id == WORKER.key_id
    assert signing.check(bound.id) == []


REASONED = [(b.running, "release"), (b.aborting, "release"), (b.aborting, "acknowledge_cancel"), (b.running_stalled, "resume")]


@pytest.mark.parametrize(("build", "verb"), REASONED, ids=["release", "release aborting", "acknowledge", "resume"])
def test_reasons_are_signed(signing: Ledger, build: Any, verb: str):
    made = build(signing, policy=ALL | WINDOW)
    getattr(signing, verb)(made.fence, reason="low battery")
    event = newest(signing, made.id)
    assert "low battery" in (event.reason, event.payload.get("comment"))
    assert event.statement is not None
    assert signing.check(made.id) == []


@pytest.mark.parametrize("given", [{}, {"retryable": False}, {"failure_stage": "fetch", "reason_code": "timeout"}])
@pytest.mark.parametrize("exhausted", ["fail", "dead_letter"])
@pytest.mark.parametrize("build", [b.running, b.aborting])
def test_failures_with_a_stage_and_a_reason_are_signed(signing: Ledger, build: Any, given: dict[str, Any], exhausted: str):
    made = build(signing, policy=ALL | {"attempts_max": 1, "on_exhausted": exhausted})
    signing.fail(made.fence, "no route", **given)
    assert newest(signing, made.id).key_id is not None
    assert signing.check(made.id) == []


def test_many_completions_are_signed_and_refused_one_by_one(signing: Ledger, bare: Ledger):
    plain, bound = b.running(signing), b.running(signing, policy=ALL)
    answers = bare.complete_many([(plain.fence, 1), (bound.fence, 2)])
    assert [getattr(answer, "code", None) for answer in answers] == [None, "signature_invalid"]
    assert signing.settle_many([(bound.fence, 2)], request_id="r-1") == [None]
    assert signing.settle_many([(bound.fence, 2)], request_id="r-1") == [None]
    assert newest(signing, bound.id).key_id == WORKER.key_id


def test_a_token_without_its_suffix_is_refused(bare: Ledger, signing: Ledger):
    made = b.running(signing, policy=LIVENESS)
    stripped = Fence(made.id, 1, made.fence.token.removesuffix("+liveness"), "w-1", made.fence.incarnation)
    with refused_without_trace(bare, "fence_lost"):
        bare.heartbeat(stripped)


def test_the_key_must_be_that_of_the_holder(signing: Ledger, open_keyed: OpenKeyed):
    other = key("worker", "w-2")
    signing.enrol_key(other.public, role="worker", name="w-2")
    made = b.running(signing, policy=LIVENESS)
    with open_keyed([other]) as impostor, refused_without_trace(signing, "signature_invalid"):
        impostor.heartbeat(made.fence)


def test_a_renewing_claim_is_a_signed_beat(signing: Ledger, bare: Ledger):
    made = b.running(signing, policy=LIVENESS)
    with refused_without_trace(bare, "signature_invalid"):
        bare.claim_job(made.id, "w-1", incarnation=made.fence.incarnation)
    signing.claim_job(made.id, "w-1")
    assert signers(signing, made.id)[-1] == ("heartbeat", "w-1")


@pytest.mark.parametrize("policy", [LIVENESS, ALL], ids=["liveness", "all"])
def test_a_signed_renewal_for_another_ttl_keeps_the_fence(signing: Ledger, policy: dict[str, str]):
    made = b.running(signing, policy=policy)
    job = signing.claim_job(made.id, "w-1", ttl="15m")
    assert (job.fence, job.policy and job.policy.lease_ttl_ms) == (made.fence, 900_000)
    assert signers(signing, made.id)[-1] == ("heartbeat", "w-1")
    signing.heartbeat(made.fence)
    signing.complete(made.fence, 1)
    assert signing.check(made.id) == []


def test_a_fence_without_a_worker_name_is_accepted(signing: Ledger):
    made = b.running(signing, policy=LIVENESS)
    signing.heartbeat(Fence(made.id, 1, made.fence.token))
    assert signers(signing, made.id)[-1] == ("heartbeat", "w-1")


def test_a_clock_that_is_set_back_stops_no_signer(signing: Ledger, clock: ManualClock):
    made = b.running(signing, policy=ALL)
    signing.heartbeat(made.fence)
    clock.jump(-3_600)
    signing.heartbeat(made.fence, progress=1)
    signing.heartbeat_many([made.fence])
    signing.complete(made.fence, 1)
    event = newest(signing, made.id)
    assert (event.type, (event.received_at - event.at).total_seconds()) == ("succeeded", 3_600)
    assert signing.check(made.id) == []


def test_an_agent_without_a_key_skips_tasks_that_require_signatures(signing: Ledger, bare: Ledger):
    signing.set_policy("tidy", signed="liveness")
    held, plain = signing.enqueue("tidy").id, signing.enqueue("read").id
    bob = Agent(bare, "bob")
    with refused_without_trace(signing, "signature_invalid") as caught:
        bob.start(held)
    assert "this process has no key of worker 'bob'" in str(caught.value)
    brief = bob.resume()
    assert brief.task is not None and (brief.task.id, brief.why) == (plain, "next")
    bob.complete(plain)
    assert bob.resume().task is None
    w = Agent(signing, "w-1")
    assert w.resume().task.id == held  # type: ignore[union-attr]


def test_an_agent_without_its_former_key_takes_another_task(signing: Ledger, bare: Ledger):
    signing.set_policy("tidy", signed="liveness")
    held = signing.enqueue("tidy", priority=5).id
    Agent(signing, "w-1").start(held)
    plain = signing.enqueue("read").id
    brief = Agent(bare, "w-1").resume()
    assert brief.task is not None and brief.task.id == plain


def test_a_late_start_is_a_signed_return(signing: Ledger):
    made = b.claimed_stalled(signing, policy=WINDOW | LIVENESS)
    signing.start(made.fence)
    assert signers(signing, made.id)[-2:] == [("stalled", "w-1"), ("resumed", "w-1")]
    assert signing.check(made.id) == []


# The system


def test_the_system_signs_its_events(signing: Ledger, clock: ManualClock):
    made = b.running(signing, policy=WINDOW | ALL)
    clock.advance(61)
    assert signing.sweep() == {"stalled": 1}
    signing.heartbeat(made.fence)
    assert signing.sweep() == {"resumed": 1}
    clock.advance(61)
    signing.sweep()
    clock.advance(61)
    assert signing.sweep() == {"requeued": 1}
    assert signers(signing, made.id)[3:] == [
        ("stalled", "hq"), ("heartbeat", "w-1"), ("resumed", "hq"), ("stalled", "hq"), ("requeued", "hq"),
    ]  # fmt: skip
    assert signing.check(made.id) == []


def test_requeues_are_not_signed_under_a_liveness_policy(signing: Ledger, clock: ManualClock):
    made = b.running(signing, policy=LIVENESS)
    clock.advance(61)
    signing.sweep()
    assert signers(signing, made.id)[-2:] == [("stalled", "hq"), ("requeued", None)]


def test_a_gc_without_the_server_key_skips_signed_jobs(signing: Ledger, robot: Ledger, clock: ManualClock):
    made, free = b.running(signing, policy=LIVENESS), b.running(signing)
    clock.advance(61)
    assert Agent(robot, "w-2").gc().released == [free.id]
    assert robot.get(made.id).status == "running"


def test_a_sweeper_without_the_server_key_skips_signed_jobs(
    signing: Ledger, robot: Ledger, clock: ManualClock, caplog: pytest.LogCaptureFixture
):
    made, free = b.running(signing, policy=LIVENESS), b.running(signing)
    clock.advance(61)
    assert robot.sweep() == {"stalled": 1, "requeued": 1, "unsigned": 1}
    assert robot.sweep() == {"unsigned": 1}
    assert robot.get(made.id).status == "running"
    assert robot.get(free.id).status == "queued"
    assert len([text for text in caplog.messages if "server key" in text]) == 1
    assert signing.sweep() == {"stalled": 1, "requeued": 1}


def test_a_sweeper_that_cannot_sign_drops_its_duty(signing: Ledger, robot: Ledger, clock: ManualClock):
    b.running(signing, policy=LIVENESS)
    clock.advance(61)
    keyless, keyed = SweepService(robot, "keyless"), SweepService(signing, "keyed")
    assert [keyless.tick(), keyless.tick()] == [{}, {"unsigned": 1}]
    assert [keyed.tick(), keyed.tick()] == [{}, {"stalled": 1, "requeued": 1}]


def test_a_stall_by_id_needs_the_server_key(signing: Ledger, robot: Ledger, clock: ManualClock):
    made = b.running(signing, policy=WINDOW | LIVENESS)
    clock.advance(61)
    with refused_without_trace(robot, "signature_invalid") as caught:
        robot.stall(made.id)
    assert (caught.value.context["why"], caught.value.retryable) == ("server_key", True)
    signing.stall(made.id)
    assert signers(signing, made.id)[-1] == ("stalled", "hq")


@pytest.mark.parametrize("verb", ["heartbeat", "complete", "release", "fail"])
def test_a_late_holder_waits_for_a_process_with_the_server_key(signing: Ledger, robot: Ledger, clock: ManualClock, verb: str):
    made = b.running(signing, policy=LIVENESS)
    clock.advance(61)
    given = {"error": "x"} if verb == "fail" else {}
    with refused_without_trace(robot, "signature_invalid") as caught:
        getattr(robot, verb)(made.fence, **given)
    assert caught.value.retryable
    getattr(signing, verb)(made.fence, **given)
    assert [found for found in signers(signing, made.id) if found[0] in ("stalled", "resumed")][:2] == [
        ("stalled", "hq"),
        ("resumed", "w-1"),
    ]
    assert signing.check(made.id) == []


def test_the_system_signs_the_outcome_of_an_undo_job(signing: Ledger, robot: Ledger, clock: ManualClock):
    made = b.running(signing, policy=ALL)
    signing.heartbeat(made.fence, undo={"kind": "delete", "args": {"id": 1}})
    signing.fail(made.fence, "no", retryable=False)
    clock.advance(61)
    assert robot.sweep() == {"enqueued": 1}
    [undo] = robot.claim("w-1", [robot.get(made.id).queue], start=True)
    robot.complete(undo.fence)
    assert robot.sweep() == {"unsigned": 1}
    assert signing.sweep() == {"compensated": 1}
    assert signers(signing, made.id)[-1] == ("compensated", "hq")
    assert signing.check(made.id) == []


# Operators and clients


@pytest.mark.parametrize(
    ("build", "verb", "options"),
    [
        (b.running, "assist", {}),
        (b.running, "cancel", {}),
        (b.running, "cancel", {"hard": True}),
        (b.running, "dead_letter", {"reason_code": "policy_violation"}),
        (b.succeeded, "discard", {}),
    ],
)
def test_changes_by_operators_are_signed_with_their_key(
    signing: Ledger, bare: Ledger, build: Any, verb: str, options: dict[str, Any]
):
    made: Made = build(signing, policy=ALL)
    with refused_without_trace(bare, "signature_invalid") as caught:
        getattr(bare, verb)(made.id, **options)
    assert (caught.value.context["why"], caught.value.retryable) == ("operator_key", False)
    with refused_without_trace(signing, "signature_invalid"):
        getattr(signing, verb)(made.id, actor="bob", **options)
    getattr(signing, verb)(made.id, **options)
    assert signers(signing, made.id)[-1][1] == "ann"
    assert signing.check(made.id) == []


def test_a_job_needs_no_signature_before_its_first_claim(signing: Ledger, bare: Ledger):
    made = b.queued(signing, policy=ALL)
    bare.cancel(made.id)
    assert newest(bare, made.id).key_id is None


# Changes of keys


def test_a_revoked_key_signs_nothing_more(signing: Ledger, robot: Ledger):
    made = b.running(signing, policy=LIVENESS)
    robot.heartbeat(made.fence)
    signing.revoke_key(WORKER.key_id)
    with refused_without_trace(robot, "signature_invalid"):
        robot.heartbeat(made.fence)
    assert signing.check(made.id) == []


def test_a_rotated_key_takes_over_at_once(signing: Ledger, open_keyed: OpenKeyed):
    fresh = key("worker", "w-1", 2)
    with open_keyed([WORKER, fresh]) as holder:
        made = b.running(holder, policy=LIVENESS)
        holder.heartbeat(made.fence)
        signing.rotate_key(WORKER.key_id, fresh.public)
        holder.heartbeat(made.fence)
        holder.heartbeat(made.fence)
        found = [event.key_id for event in holder.events(made.id)][3:]
    assert found == [WORKER.key_id, fresh.key_id, fresh.key_id]
    assert signing.check(made.id) == []


def test_a_key_that_is_not_enrolled_signs_nothing(signing: Ledger, open_keyed: OpenKeyed):
    made = b.running(signing, policy=LIVENESS)
    with open_keyed([key("worker", "w-1", 9)]) as impostor, refused_without_trace(signing, "signature_invalid"):
        impostor.heartbeat(made.fence)


def test_a_server_key_that_was_revoked_signs_nothing(signing: Ledger, clock: ManualClock, open_keyed: OpenKeyed):
    spare = key("server", "spare")
    signing.enrol_key(spare.public, role="server", name="spare")
    made = b.running(signing, policy=WINDOW | LIVENESS)
    clock.advance(61)
    with open_keyed([SERVER]) as old, open_keyed([spare]) as fresh:
        fresh.revoke_key(SERVER.key_id)
        assert old.sweep() == {"unsigned": 1}
        assert fresh.sweep() == {"stalled": 1}
    assert newest(signing, made.id).key_id == spare.key_id


# Errors name what is missing


def test_a_refusal_names_the_missing_key_and_the_loaded_keys(signing: Ledger, bare: Ledger, open_keyed: OpenKeyed):
    made = b.running(signing, policy=ALL)
    with open_keyed([key("worker", "arm-1")]) as other:
        for ledger, loaded in ((bare, "none"), (other, "worker arm-1")):
            for verb in (ledger.heartbeat, ledger.complete, ledger.release):
                with pytest.raises(SignatureInvalid, match=rf"no key of worker 'w-1' \(loaded: {loaded}\)"):
                    verb(made.fence)


def test_a_refusal_says_that_the_key_was_revoked(signing: Ledger, robot: Ledger):
    made = b.running(signing, policy=ALL)
    signing.revoke_key(WORKER.key_id)
    for _ in range(2):
        with pytest.raises(SignatureInvalid, match="was revoked"):
            robot.complete(made.fence)


def test_a_process_can_ask_which_keys_are_missing(signing: Ledger, robot: Ledger, bare: Ledger):
    robot.check_key("w-1")
    with pytest.raises(SignatureInvalid, match=r"no key of worker 'w-2' \(loaded: worker w-1\)"):
        robot.check_key("w-2")
    with pytest.raises(SignatureInvalid, match="loaded: none"):
        bare.check_key("w-1")
    signing.set_policy("tidy", signed="liveness")
    assert bare.policy_of(bare.enqueue("tidy").id).signed == "liveness"


# Policies


def _signed_policy(ledger: Ledger, made: Made) -> str:
    policy = ledger.get(made.id).policy
    assert policy is not None
    return policy.signed


@pytest.mark.parametrize("scope", ["kind", "tier"])
@pytest.mark.parametrize("fields", [{"signed": "liveness"}, {"signed": "none"}, {"signed": None, "attempts_max": 3}], ids=str)
def test_lowering_the_signed_policy_requires_a_key(signing: Ledger, robot: Ledger, scope: str, fields: dict[str, Any]):
    signing.set_policy(**{scope: "tidy"}, signed="all")
    with pytest.raises(Forbidden) as caught:
        robot.set_policy(**{scope: "tidy"}, **fields)
    assert caught.value.context == {scope: "tidy"}
    assert signing.policies()[scope] == {"tidy": {"signed": "all"}}
    signing.set_policy(**{scope: "tidy"}, **fields)
    assert signing.policies()[scope] == {"tidy": {name: value for name, value in fields.items() if value is not None}}


def test_signatures_may_be_required_without_a_key(bare: Ledger):
    bare.set_policy("tidy", signed="liveness", attempts_max=3)
    bare.set_policy("tidy", signed="all")
    assert bare.policies()["kind"] == {"tidy": {"signed": "all", "attempts_max": 3}}


def test_without_enrolled_keys_signed_may_be_lowered(ledger: Ledger):
    ledger.set_policy("tidy", signed="all")
    ledger.set_policy("tidy", signed=None)
    assert ledger.policies()["kind"] == {}


def test_a_job_cannot_lower_the_signed_policy_of_its_kind(signing: Ledger, bare: Ledger):
    signing.set_policy("tidy", signed="all")
    assert _signed_policy(signing, b.claimed(bare, kind="tidy", policy={"signed": "none"})) == "all"


def test_a_change_keeps_the_other_fields(signing: Ledger, bare: Ledger):
    signing.set_policy("tidy", signed="all", attempts_max=2)
    bare.set_policy("tidy", attempts_max=3, lease_ttl="90s")
    assert signing.policies()["kind"] == {"tidy": {"signed": "all", "attempts_max": 3, "lease_ttl_ms": 90_000}}
    for lower in (lambda: bare.set_policy("tidy", signed=None), lambda: bare.unset_policy("tidy")):
        with pytest.raises(Forbidden):
            lower()


def test_a_declaration_lowers_signed_only_with_a_key(signing: Ledger, bare: Ledger):
    signing.declare_policy("tidy", signed="all")
    for lower in (lambda: bare.declare_policy("tidy"), lambda: bare.unset_policy("tidy", declared=True)):
        with pytest.raises(Forbidden):
            lower()
    assert signing.declarations()["tidy"].policy == {"signed": "all"}
    with pytest.raises(Forbidden):
        bare.set_policy("tidy", signed="none")
    signing.declare_policy("tidy")
    assert signing.declarations()["tidy"].policy == {}


def test_a_declaration_may_lower_signed_if_an_operator_has_set_it(signing: Ledger, bare: Ledger):
    signing.set_policy("tidy", signed="all")
    bare.declare_policy("tidy", signed="all")
    bare.declare_policy("tidy", signed="none")
    assert _signed_policy(signing, b.claimed(bare, kind="tidy")) == "all"
