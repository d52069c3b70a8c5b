"""The audit of signatures: a missing, forged, replayed or misplaced signature is found, with its event."""

from typing import Any

import msgspec
import pytest

from holdfast.core import commands as c
from holdfast.core.audit import check_history
from holdfast.core.model import Actor, EventRecord, EventType, Role, StallReason
from holdfast.core.payloads import BeatPayload
from holdfast.errors import InvalidTransition, SignatureInvalid
from holdfast.proof.envelopes import read_envelope, server_resume_envelope, server_stall_envelope
from holdfast.proof.key_book import REVOKED, KeyBook, KeyChange
from holdfast.proof.signing import SignatureCheck, Signed
from holdfast.proof.statements import read_statement
from tests.unit.histories import ERROR, OPERATOR, STEP, T0, History, refusal_of
from tests.unit.signing import ALL, HOLDER, KEYS, LEDGER, LIVENESS, SignedHistory, book


def life() -> SignedHistory:
    """A history with nearly every type of signed event."""
    history = SignedHistory().start()
    history.wait(1).beat(stage="A", progress=1, undo=STEP).beat(assist_requested=True)
    history.do(c.Assist, actor=OPERATOR, on=True).do(c.Assist, actor=OPERATOR, on=False)
    history.wait(31).sweep().beat().sweep().wait(61).beat().do(c.Release)
    history.wait(1).start().fail().wait(60).start()
    history.do(c.Fail, error=ERROR, retryable=False)
    history.do(c.Annotate, actor=OPERATOR, note=EventType.DISCARDED)
    return history


def problems(events: list[EventRecord], keys: KeyBook | None = None, ledger: str = LEDGER) -> set[str]:
    return {found.rule for found in check_history(events, None, SignatureCheck(keys or book(), ledger))}


def test_a_signed_history_is_valid():
    history = life()
    assert check_history(history.events, history.job, SignatureCheck(book(), LEDGER)) == []


def test_without_a_key_book_signatures_are_not_checked():
    history = SignedHistory(LIVENESS).start().beat()
    forged = [*history.events[:-1], msgspec.structs.replace(history.events[-1], signature=b"no")]
    assert check_history(forged) == []


def test_an_unsigned_policy_needs_no_signatures():
    assert problems(History().start().beat().complete().events) == set()


@pytest.mark.parametrize("policy", [LIVENESS, ALL])
def test_every_missing_signature_is_found(policy: Any):
    history = SignedHistory(policy).start().beat()
    bare = msgspec.structs.replace(history.events[-1], key_id=None, signature=None, statement=None)
    assert problems([*history.events[:-1], bare]) == {"unsigned"}


def test_an_incomplete_signature_is_invalid():
    history = History().start().beat()
    assert problems([*history.events[:-1], msgspec.structs.replace(history.events[-1], key_id="x")]) == {"signature"}


@pytest.mark.parametrize(
    ("changes", "rules"),
    [
        ({"signature": b"\0" * 64}, {"signature"}),
        ({"signature": b""}, {"signature"}),
        ({"key_id": "0" * 16}, {"key", "signature"}),
        ({"statement": b"{}"}, {"statement"}),
        ({"payload": BeatPayload(stage="B").encode()}, {"statement"}),
        ({"at": T0 + 7}, {"statement"}),
    ],
)
def test_a_forged_event_is_found(changes: dict[str, Any], rules: set[str]):
    history = SignedHistory(LIVENESS).start().beat(stage="A")
    assert problems([*history.events[:-1], msgspec.structs.replace(history.events[-1], **changes)]) == rules


def test_statements_of_another_ledger_are_found():
    assert problems(SignedHistory(LIVENESS).start().beat().events, ledger="else") == {"statement"}


def test_a_repeated_statement_is_found():
    history = SignedHistory(LIVENESS).start().beat().beat()
    first, second = history.events[-2:]
    again = msgspec.structs.replace(
        second, at=first.at, key_id=first.key_id, signature=first.signature, statement=first.statement, rev=second.rev + 1
    )
    assert problems([*history.events, again]) == {"counter"}


def test_a_time_far_from_the_ledgers_is_found():
    history = SignedHistory(LIVENESS).start().beat()
    late = msgspec.structs.replace(history.events[-1], received_at=history.now + 400_000_000)
    assert "skew" in problems([*history.events[:-1], late])


def test_a_clock_that_was_set_back_stops_no_signer():
    history = SignedHistory().start().wait(1).beat().wait(-3_600).beat().stall().do(c.Resume).complete()
    assert history.events[-1].at == history.now == history.events[-1].received_at - 3_600_000_000
    assert check_history(history.events, history.job, SignatureCheck(book(), LEDGER)) == []


def test_a_signature_ahead_of_the_ledgers_time_is_refused():
    history = SignedHistory().start().wait(1).beat().wait(-3_600)
    fields = {"fence": history.fence, "beat": BeatPayload()}
    given = history.stated(c.Heartbeat, fields, at=history.now + 3_600_000_000)
    found = refusal_of(history, c.Heartbeat, **fields, signed=given)
    assert (found.context["why"], found.retryable) == ("skew", True)


def server_says(history: SignedHistory, **changes: Any) -> None:
    """A server reports the holder as stalled, in the form for robots."""
    job = history.job
    given: dict[str, Any] = {
        "ledger_id": LEDGER, "job_id": 7, "attempt": 1, "rev": job.rev + 1, "server": "hq", "robot": "w-1", "at": history.now,
        "last_beat_at": job.last_beat_at, "heartbeat_interval_ms": 10_000, "stall_after_ms": 30_000,
    }  # fmt: skip
    statement, key_id, signature = read_envelope(server_stall_envelope(KEYS["server", "hq"], **given | changes))
    said = read_statement(statement)
    signed = Signed(key_id, signature, statement, said)
    history.do(c.Stall, actor=said.actor, reason=StallReason.NO_HEARTBEAT, signed=signed)


def server_resumes(history: SignedHistory, **changes: Any) -> None:
    given: dict[str, Any] = {
        "ledger_id": LEDGER, "job_id": 7, "attempt": 1, "rev": history.job.rev + 1, "server": "hq", "robot": "w-1",
        "at": history.now,
    }  # fmt: skip
    statement, key_id, signature = read_envelope(server_resume_envelope(KEYS["server", "hq"], **given | changes))
    said = read_statement(statement)
    history.do(c.Resume, actor=said.actor, fence=None, signed=Signed(key_id, signature, statement, said))


def test_a_server_resumes_after_a_beat_that_came_after_the_stall():
    history = SignedHistory(LIVENESS).start().wait(31)
    server_says(history)
    with pytest.raises(InvalidTransition):
        server_resumes(history)
    history.wait(1).beat().wait(1)
    with pytest.raises(SignatureInvalid):
        server_resumes(history, robot="w-2")
    server_resumes(history)
    assert history.types[-3:] == ["stalled", "heartbeat", "resumed"]
    assert problems(history.events) == set()
    other = msgspec.structs.replace(history.events[-1], actor=Actor(Role.SYSTEM, "elsewhere"))
    assert problems([*history.events[:-1], other]) == {"statement"}


def test_a_servers_stall_report_in_the_form_for_robots_is_valid():
    history = SignedHistory(LIVENESS).start().wait(31)
    server_says(history)
    assert problems(history.events) == set()


def test_a_server_statement_about_another_worker_is_found():
    history = SignedHistory(LIVENESS).start().wait(31)
    with pytest.raises(SignatureInvalid):
        server_says(history, robot="w-2")
    server_says(history)
    other = SignedHistory(LIVENESS).claim(Actor(Role.WORKER, "w-2", "boot-1")).do(c.Start, signed=None).wait(31)
    assert problems([*other.events, history.events[-1]]) == {"record", "statement"}


def test_a_key_is_valid_up_to_its_revocation():
    history = SignedHistory(LIVENESS).start().beat().beat()
    before, after = (event.pos for event in history.events[-2:])
    assert after == before + 1
    keys = book()
    public = HOLDER.public_key.public
    keys.add(KeyChange(after, REVOKED, HOLDER.key_id, "worker", "w-1", public, T0, "operator:ann", HOLDER.key_id))
    found = check_history(history.events, None, SignatureCheck(keys, LEDGER))
    assert [(each.rev, each.rule) for each in found] == [(history.job.rev, "key")]


def test_a_signature_on_the_first_event_is_checked():
    history = SignedHistory(LIVENESS)
    beat = SignedHistory(LIVENESS).start().beat().events[-1]
    odd = msgspec.structs.replace(history.events[0], key_id=beat.key_id, signature=beat.signature, statement=beat.statement)
    assert problems([odd]) == {"key", "statement"}


def test_a_statement_on_two_events_of_one_type_is_found():
    history = SignedHistory(LIVENESS).start().beat()
    again = msgspec.structs.replace(history.events[-1], rev=history.events[-1].rev + 1)
    assert problems([*history.events, again]) == {"counter"}


def test_a_signers_time_on_an_unsigned_event_is_found():
    history = History().start().beat()
    dated = msgspec.structs.replace(history.events[-1], at=history.events[-1].received_at - 1)
    assert problems([*history.events[:-1], dated]) == {"time"}


def test_an_unreadable_statement_ends_the_check():
    history = SignedHistory(LIVENESS).start().beat().beat()
    torn = msgspec.structs.replace(history.events[-2], statement=b"{")
    assert "illegible" in problems([*history.events[:-2], torn, history.events[-1]])
