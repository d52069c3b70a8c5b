"""Every verb from every status: what it records and where it leads, or how it is refused.

The table is written by hand from the contract. A cell is `events > status/phase`, `events` alone if the status does not
change, or the code of the refusal.
"""

from collections.abc import Callable
from typing import Any

import pytest

from holdfast import Ledger
from tests.contract.builders import BUILDERS, WORKER, Made, queued, refusal_of, refused_without_trace, trace, types

Verb = Callable[[Ledger, Made], Any]

VERBS: dict[str, Verb] = {
    "claim by holder": lambda ledger, made: ledger.claim_job(made.id, WORKER),
    "claim by another": lambda ledger, made: ledger.claim_job(made.id, "w-2"),
    "start": lambda ledger, made: ledger.start(made.fence),
    "heartbeat": lambda ledger, made: ledger.heartbeat(made.fence, stage="FETCH", progress=1),
    "plain heartbeat": lambda ledger, made: ledger.heartbeat(made.fence),
    "complete": lambda ledger, made: ledger.complete(made.fence, None),
    "fail, transient": lambda ledger, made: ledger.fail(made.fence, "out of reach"),
    "fail, permanent": lambda ledger, made: ledger.fail(made.fence, "gone", retryable=False),
    "fail, invalid": lambda ledger, made: ledger.fail(
        made.fence, "no url", retryable=False, reason_code="validation_failed", failure_stage="input"
    ),
    "release": lambda ledger, made: ledger.release(made.fence),
    "acknowledge": lambda ledger, made: ledger.acknowledge_cancel(made.fence),
    "stall by system": lambda ledger, made: ledger.stall(made.id),
    "stall by holder": lambda ledger, made: ledger.stall(made.fence),
    "resume by system": lambda ledger, made: ledger.resume(made.id),
    "resume by holder": lambda ledger, made: ledger.resume(made.fence),
    "requeue": lambda ledger, made: ledger.requeue(made.id),
    "assist": lambda ledger, made: ledger.assist(made.id),
    "unassist": lambda ledger, made: ledger.unassist(made.id),
    "cancel, soft": lambda ledger, made: ledger.cancel(made.id),
    "cancel, hard": lambda ledger, made: ledger.cancel(made.id, hard=True),
    "dead_letter": lambda ledger, made: ledger.dead_letter(made.id, reason_code="timeout"),
    "discard": lambda ledger, made: ledger.discard(made.id),
    "compensated": lambda ledger, made: ledger.annotate(made.id, "compensated"),
    "compensation_failed": lambda ledger, made: ledger.annotate(made.id, "compensation_failed"),
}

INVALID, LOST, CONFLICT = "invalid_transition", "fence_lost", "lease_conflict"
WAITS, EARLY = "not_claimable", "not_stalled_yet"
CANCELLED = "cancelled > cancelled"
DEAD = "dead_lettered > dead_lettered"
AGAIN = "stalled, requeued > queued"
RESUMED_AGAIN = "resumed, stalled, requeued > queued"

ENDED_BY_HOLDER = {"succeeded": INVALID, "failed": INVALID}
ENDED_BY_OTHERS = {"cancelled": LOST, "dead_lettered": LOST}
GONE = {"queued": LOST} | ENDED_BY_HOLDER | ENDED_BY_OTHERS
"""A holder's verb on a job that it no longer holds: its own end is recognised, after any other end the fence is lost."""
FINISHED = {"succeeded": INVALID, "failed": INVALID, "cancelled": INVALID, "dead_lettered": INVALID}
RUNNING = ("running", "aborting", "assisted")
HELD = ("claimed", *RUNNING)
STALLED = ("claimed_stalled", "running_stalled", "aborting_stalled")


def _all(names: tuple[str, ...], cell: str) -> dict[str, str]:
    return dict.fromkeys(names, cell)


def _note(kind: str) -> dict[str, str]:
    return _all(("queued", *HELD, *STALLED), INVALID) | _all(tuple(FINISHED), kind)


EXPECTED: dict[str, dict[str, str]] = {
    "claim by holder": {"queued": "claimed > claimed"}
    | _all(HELD, "heartbeat")
    | _all(("claimed_stalled", "running_stalled"), "claimed > claimed")
    | {"aborting_stalled": WAITS}
    | FINISHED,
    "claim by another": {"queued": "claimed > claimed"} | _all(HELD, CONFLICT) | _all(STALLED, WAITS) | FINISHED,
    "start": GONE
    | {"claimed": "started > running/executing", "claimed_stalled": "resumed > running/executing"}
    | _all(RUNNING, INVALID)
    | {"running_stalled": INVALID, "aborting_stalled": INVALID},
    "heartbeat": GONE | _all(HELD, "heartbeat") | _all(STALLED, "heartbeat"),
    "plain heartbeat": GONE | _all(HELD, "heartbeat") | _all(STALLED, "heartbeat"),
    "complete": GONE
    | {"claimed": INVALID, "claimed_stalled": INVALID}
    | _all(RUNNING, "succeeded > succeeded")
    | _all(("running_stalled", "aborting_stalled"), "resumed, succeeded > succeeded"),
    "fail, transient": GONE
    | {"claimed": INVALID, "claimed_stalled": INVALID, "running": AGAIN, "assisted": AGAIN, "aborting": CANCELLED}
    | {"running_stalled": RESUMED_AGAIN, "aborting_stalled": "resumed, cancelled > cancelled"},
    "fail, permanent": GONE
    | {"claimed": INVALID, "claimed_stalled": INVALID}
    | _all(RUNNING, "failed > failed")
    | _all(("running_stalled", "aborting_stalled"), "resumed, failed > failed"),
    "fail, invalid": GONE
    | {"claimed": INVALID, "claimed_stalled": INVALID}
    | _all(RUNNING, DEAD)
    | _all(("running_stalled", "aborting_stalled"), "resumed, dead_lettered > dead_lettered"),
    "release": GONE
    | {"claimed": AGAIN, "running": AGAIN, "assisted": AGAIN, "aborting": "stalled, cancelled > cancelled"}
    | {"claimed_stalled": "requeued > queued", "running_stalled": RESUMED_AGAIN}
    | {"aborting_stalled": "resumed, stalled, cancelled > cancelled"},
    "acknowledge": GONE
    | _all(("claimed", "running", "assisted", "claimed_stalled", "running_stalled"), INVALID)
    | {"aborting": CANCELLED, "aborting_stalled": "resumed, cancelled > cancelled"},
    "stall by system": {"queued": INVALID} | _all(HELD, EARLY) | _all(STALLED, INVALID) | FINISHED,
    "stall by holder": GONE
    | {"claimed": "stalled > stalled/executing", "running": "stalled > stalled/executing"}
    | {"aborting": "stalled > stalled/aborting", "assisted": "stalled > stalled/assisted"}
    | _all(STALLED, INVALID),
    "resume by system": _all(("queued", *HELD, *STALLED), INVALID) | FINISHED,
    "resume by holder": GONE
    | _all(HELD, INVALID)
    | _all(("claimed_stalled", "running_stalled"), "resumed > running/executing")
    | {"aborting_stalled": "resumed > running/aborting"},
    "requeue": _all(("queued", *HELD, "aborting_stalled"), INVALID)
    | _all(("claimed_stalled", "running_stalled"), "requeued > queued")
    | FINISHED,
    "assist": _all(("queued", *HELD, *STALLED), INVALID) | FINISHED | {"running": "assist_started > running/assisted"},
    "unassist": _all(("queued", *HELD, *STALLED), INVALID) | FINISHED | {"assisted": "assist_ended > running/executing"},
    "cancel, soft": _all(("queued", "claimed", *STALLED), CANCELLED)
    | _all(("running", "assisted"), "cancel_requested > running/aborting")
    | FINISHED
    | {"aborting": "", "cancelled": ""},
    "cancel, hard": _all(("queued", *HELD, *STALLED), CANCELLED) | FINISHED | {"cancelled": ""},
    "dead_letter": _all(("queued", *HELD, *STALLED), DEAD) | FINISHED,
    "discard": _note("discarded"),
    "compensated": _note("compensated"),
    "compensation_failed": _note("compensation_failed"),
}

REPLAYED = ("failed", "cancelled", "dead_lettered")


def _cell(ledger: Ledger, verb: str, status: str) -> str:
    """What a verb does with a new job in this status, written as in the table."""
    made = BUILDERS[status](ledger)
    before, everything = ledger.get(made.id), trace(ledger)
    code = refusal_of(VERBS[verb], ledger, made)
    assert ledger.check(made.id) == []
    if code:
        assert trace(ledger) == everything
        return code
    after, events = ledger.get(made.id), types(ledger, made.id, before.rev)
    assert after.rev == before.rev + len(events)
    assert after.attempt == before.attempt + ("claimed" in events)
    if (after.status, after.phase) == (before.status, before.phase):
        return ", ".join(events)
    return f"{', '.join(events)} > {after.status.value}" + (f"/{after.phase.value}" if after.phase else "")


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_in_every_status(ledger: Ledger, verb: str):
    assert {status: _cell(ledger, verb, status) for status in BUILDERS} == EXPECTED[verb]


@pytest.mark.parametrize("status", REPLAYED)
def test_replay_makes_a_new_job_from(ledger: Ledger, status: str):
    made = BUILDERS[status](ledger)
    rev = ledger.get(made.id).rev
    fresh = ledger.replay(made.id)
    assert (fresh.status, fresh.rev, fresh.attempt, fresh.replay_of) == ("queued", 1, 0, made.id)
    assert types(ledger, fresh.id) == ["enqueued"]
    assert ledger.get(made.id).rev == rev
    assert ledger.check(fresh.id) == ledger.check(made.id) == []


def test_other_jobs_are_not_replayed(ledger: Ledger):
    for status in set(BUILDERS) - set(REPLAYED):
        made = BUILDERS[status](ledger)
        with refused_without_trace(ledger, INVALID):
            ledger.replay(made.id)


def test_an_unknown_job_is_not_found(ledger: Ledger):
    made = queued(ledger)
    unknown = Made(made.id + 1, type(made.fence)(made.id + 1, 1, "guessed", WORKER))
    before = trace(ledger)
    assert {refusal_of(verb, ledger, unknown) for verb in VERBS.values()} == {"not_found"}
    assert trace(ledger) == before
