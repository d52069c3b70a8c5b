"""Rules 3 to 5 and 7: revisions, events, and who may do what."""

from collections.abc import Callable
from typing import Any

import pytest

from holdfast import Actor, HoldfastError, Ledger, Role
from holdfast.testing import ManualClock
from tests.contract.builders import (
    ON_A_JOB,
    aborting,
    queued,
    refusal_of,
    refused,
    refused_without_trace,
    running,
    trace,
    types,
)

Call = Callable[..., Any]

every_verb = pytest.mark.parametrize(("build", "call"), ON_A_JOB.values(), ids=ON_A_JOB)


@every_verb
def test_only_the_current_revision_is_accepted(ledger: Ledger, build, call: Call):
    made = build(ledger)
    rev = ledger.get(made.id).rev
    for expected in {max(1, rev - 1), rev + 1} - {rev}:
        with refused_without_trace(ledger, "conflict") as caught:
            call(ledger, made, expected_rev=expected)
        assert caught.value.context["rev"] == rev
    before = trace(ledger)
    assert {refusal_of(call, ledger, made, expected_rev=odd) for odd in (0, -1, 2**31)} == {"limit_exceeded"}
    assert {refusal_of(call, ledger, made, expected_rev=odd) for odd in (True, "3", 2.0)} == {"validation_error"}
    assert trace(ledger) == before
    call(ledger, made, expected_rev=rev)
    assert ledger.check(made.id) == []


def test_a_moved_revision_does_not_affect_the_holder(ledger: Ledger):
    made = running(ledger)
    for _ in range(3):
        ledger.heartbeat(made.fence)
    assert ledger.complete(made.fence).status == "succeeded"


def test_a_cancel_without_effect_still_checks_the_revision(ledger: Ledger):
    made = aborting(ledger)
    with refused("conflict"):
        ledger.cancel(made.id, expected_rev=1)


# Roles


WORKS_ELSEWHERE = Actor(Role.WORKER, "w-9", "boot")
SYSTEM, OPERATOR, CLIENT = Actor(Role.SYSTEM, "ledger"), Actor(Role.OPERATOR, "ann"), Actor(Role.CLIENT, "shop")

FORBIDDEN = [
    ("requeue", OPERATOR),
    ("requeue", CLIENT),
    ("requeue", WORKS_ELSEWHERE),
    ("assist", CLIENT),
    ("assist", SYSTEM),
    ("assist", WORKS_ELSEWHERE),
    ("unassist", CLIENT),
    ("unassist", SYSTEM),
    ("unassist", WORKS_ELSEWHERE),
    ("cancel", WORKS_ELSEWHERE),
    ("cancel hard", WORKS_ELSEWHERE),
    ("dead_letter", CLIENT),
    ("dead_letter", WORKS_ELSEWHERE),
    ("replay", CLIENT),
    ("replay", WORKS_ELSEWHERE),
    ("discard", CLIENT),
    ("discard", WORKS_ELSEWHERE),
]


def test_a_role_that_the_table_does_not_allow_is_refused(ledger: Ledger):
    for verb, actor in FORBIDDEN:
        build, call = ON_A_JOB[verb]
        made = build(ledger)
        with refused_without_trace(ledger, "forbidden"):
            call(ledger, made, actor=actor)


@pytest.mark.parametrize("verb", ["stall", "resume"])
@pytest.mark.parametrize("actor", [OPERATOR, CLIENT, WORKS_ELSEWHERE], ids=lambda actor: actor.role.value)
def test_only_the_system_may_stall_or_resume_the_jobs_of_others(ledger: Ledger, clock: ManualClock, verb: str, actor: Actor):
    made = running(ledger, policy={"resume_window": "1h"})
    clock.advance(31)
    if verb == "resume":
        ledger.stall(made.id)
        ledger.heartbeat(made.fence)
    with refused_without_trace(ledger, "forbidden"):
        getattr(ledger, verb)(made.id, actor=actor)


ALLOWED = [
    ("cancel", CLIENT),
    ("cancel", OPERATOR),
    ("cancel", SYSTEM),
    ("cancel hard", OPERATOR),
    ("dead_letter", OPERATOR),
    ("dead_letter", SYSTEM),
    ("requeue", SYSTEM),
    ("assist", OPERATOR),
    ("unassist", OPERATOR),
    ("replay", OPERATOR),
    ("discard", OPERATOR),
    ("discard", SYSTEM),
]


def test_a_role_that_the_table_allows_is_the_actor_of_the_event(ledger: Ledger):
    for verb, actor in ALLOWED:
        build, call = ON_A_JOB[verb]
        job = call(ledger, build(ledger), actor=actor)
        assert ledger.events(job.id)[-1].actor == str(actor)
        assert ledger.check(job.id) == []


@pytest.mark.parametrize(
    "actor",
    [
        Actor(Role.CLIENT, ""),
        Actor(Role.CLIENT, "a\nb"),
        Actor(Role.CLIENT, "x" * 201),
        Actor(Role.CLIENT, "\ud800"),
        Actor(Role.CLIENT, "shop", "boot"),
        "",
        "a\nb",
        "x" * 201,
        7,
    ],
    ids=lambda actor: ascii(actor)[:60],
)
def test_an_invalid_actor_name_is_refused(ledger: Ledger, actor):
    made = queued(ledger)
    with pytest.raises(HoldfastError) as caught:
        ledger.cancel(made.id, actor=actor)
    assert caught.value.code in ("limit_exceeded", "validation_error")
    assert types(ledger, made.id) == ["enqueued"]
