"""Every verb from every status: what it records and where it leads, or how it is refused.

The table is written by hand from the contract. A cell is `events > status/phase`, `events` alone if the status does not
change, or the code of the refusal.
"""

from collections.abc import Callable
from typing import Any

import pytest

from holdfast import Ledger
from tests.contract.builders import BUILDERS, WORKER, Made, refused_without_trace, types

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

CELLS = [(verb, status, cell) for verb, row in EXPECTED.items() for status, cell in row.items()]
REFUSALS = {INVALID, LOST, CONFLICT, WAITS, EARLY}


def _ids(cells: list[tuple[str, str, str]]) -> list[str]:
    return [f"{verb} from {status}" for verb, status, _ in cells]


ALLOWED = [cell for cell in CELLS if cell[2] not in REFUSALS]
REFUSED = [cell for cell in CELLS if cell[2] in REFUSALS]


def test_the_table_has_every_verb_and_every_status():
    assert {(verb, status) for verb, status, _ in CELLS} == {(verb, status) for verb in VERBS for status in BUILDERS}


@pytest.mark.parametrize(("verb", "status", "cell"), ALLOWED, ids=_ids(ALLOWED))
def test_verb_is_allowed(ledger: Ledger, verb: str, status: str, cell: str):
    made = BUILDERS[status](ledger)
    before = ledger.get(made.id)
    VERBS[verb](ledger, made)
    after = ledger.get(made.id)
    events, _, end = cell.partition(" > ")
    expected = [event for event in events.split(", ") if event]
    assert types(ledger, made.id, before.rev) == expected
    assert after.rev == before.rev + len(expected)
    ended = end.partition("/") if end else (before.status.value, "/", before.phase or "")
    assert (after.status.value, after.phase or "") == (ended[0], ended[2])
    assert after.attempt == before.attempt + ("claimed" in expected)
    assert ledger.check(made.id) == []


@pytest.mark.parametrize(("verb", "status", "code"), REFUSED, ids=_ids(REFUSED))
def test_verb_is_refused(ledger: Ledger, verb: str, status: str, code: str):
    made = BUILDERS[status](ledger)
    with refused_without_trace(ledger, code):
        VERBS[verb](ledger, made)
    assert ledger.check(made.id) == []


@pytest.mark.parametrize("status", ["failed", "cancelled", "dead_lettered"])
def test_replay_makes_a_new_job_from(ledger: Ledger, status: str):
    made = BUILDERS[status](ledger)
    rev = ledger.get(made.id).rev
    fresh = ledger.replay(made.id)
    assert (fresh.status, fresh.rev, fresh.attempt, fresh.replay_of) == ("queued", 1, 0, made.id)
    assert types(ledger, fresh.id) == ["enqueued"]
    assert ledger.get(made.id).rev == rev
    assert ledger.check(fresh.id) == ledger.check(made.id) == []


@pytest.mark.parametrize("status", [status for status in BUILDERS if status not in ("failed", "cancelled", "dead_lettered")])
def test_replay_is_refused_from(ledger: Ledger, status: str):
    made = BUILDERS[status](ledger)
    with refused_without_trace(ledger, INVALID):
        ledger.replay(made.id)


@pytest.mark.parametrize("verb", VERBS)
def test_an_unknown_job_is_not_found_by(ledger: Ledger, verb: str):
    made = BUILDERS["queued"](ledger)
    with refused_without_trace(ledger, "not_found"):
        VERBS[verb](ledger, Made(made.id + 1, type(made.fence)(made.id + 1, 1, "guessed", WORKER)))
