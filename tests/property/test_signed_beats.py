"""The statement for signed beats is the compiled form of `decide`: for every input, both give the same answer."""

import uuid
from collections.abc import Iterator
from typing import Any, NamedTuple

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings

from holdfast import HeldJob, HoldfastError, Ledger
from holdfast.core import commands as c
from holdfast.core.decide import decide
from holdfast.core.limits import SKEW_US_MAX
from holdfast.core.model import Actor, Fence, Policy, Role
from holdfast.core.payloads import BeatPayload
from holdfast.ledger.requests import Request
from holdfast.proof.signing import Signed, holder_statement
from holdfast.proof.statements import encode_statement, statement_message
from holdfast.store.events import EventFilter
from holdfast.testing import ManualClock
from tests.property.model import micros
from tests.support.signers import ALL_KEYS, WORKER, enrol, key, opened

KEYS = {"w-1": WORKER, "w-2": key("worker", "w-2")}


class Sent(NamedTuple):
    """One beat, and how it differs from a valid one."""

    wait_s: int
    counter: int
    """How far the counter is beyond the last one."""
    ahead_us: int | None
    """How far the counter is ahead of the signer's time instead."""
    skew_us: int
    attempt: int
    boot: str
    worker: str
    token: str
    rev: int
    beat: BeatPayload
    extra: dict[str, Any]
    """A field that a beat must not state."""
    stalls: bool
    """Whether the system has stalled the job before."""


BEATS = st.builds(
    BeatPayload,
    stage=st.sampled_from([None, "A", "B"]),
    progress=st.sampled_from([None, 1, 2]),
    assist_requested=st.sampled_from([None, None, False, True]),
)
EDGES = [-SKEW_US_MAX - 1, -SKEW_US_MAX, SKEW_US_MAX, SKEW_US_MAX + 1]
SENT = st.builds(
    Sent,
    wait_s=st.sampled_from([0, 0, 1, 60, 61, -3_600]),
    counter=st.sampled_from([1, 1, 1, 0, -1, 2]),
    ahead_us=st.sampled_from([None] * 6 + [0, SKEW_US_MAX, SKEW_US_MAX + 1]),
    skew_us=st.sampled_from([0, 0, 0, 0, *EDGES]),
    attempt=st.sampled_from([0, 0, 0, 0, 1]),
    boot=st.sampled_from(["", "", "", "", "another"]),
    worker=st.sampled_from(["w-1", "w-1", "w-1", "w-1", "w-2"]),
    token=st.sampled_from(["", "", "its", "its", "another"]),
    rev=st.sampled_from([0, 0, 0, 0, 0, 1]),
    beat=BEATS,
    extra=st.sampled_from([{}] * 9 + [{"rev": 4}, {"reason": "x"}, {"policy": Policy()}]),
    stalls=st.sampled_from([False] * 8 + [True]),
)


class Side:
    def __init__(self, ledger: Ledger, clock: ManualClock) -> None:
        self.ledger = ledger
        self.clock = clock

    def run(self, policy: Any, sent: list[Sent]) -> None:
        self.ledger.enqueue("k", queue="q", policy={"signed": policy, "resume_window": 600})
        [job] = self.ledger.claim("w-1", ["q"], start=True)
        for each in sent:
            (self.clock.advance if each.wait_s >= 0 else self.clock.jump)(each.wait_s)
            self._send(job, each)
        assert self.ledger.check(job.id) == []
        self.ledger.cancel(job.id, hard=True)

    def _send(self, job: HeldJob, sent: Sent) -> None:
        if sent.stalls and self.ledger.get(job.id).status == "running":
            self.clock.advance(61)
            self.ledger.sweep()
        now = micros(self.ledger.now())
        before = self._row(job.id)
        follows = max((before.counter or 0) + sent.counter, 0)
        counter = follows if sent.ahead_us is None else now + sent.skew_us + sent.ahead_us
        command = self._command(job, sent, counter, now, before.rev)
        try:
            expected: Any = decide(before, command, now)
        except HoldfastError as refusal:
            expected = refusal.code
        [answer] = self.ledger._pipeline.submit(Request("append", [command])).answers
        after = self._row(job.id)
        if isinstance(expected, str):
            assert (getattr(answer, "code", answer), after) == (expected, before)
            return
        assert after == expected.job
        events = self.ledger._store.read(lambda session: session.events(EventFilter(job_id=job.id, limit=1_000)))
        made = [_bare(event) for event in events if event.rev > before.rev]
        assert made == [_bare(event) for event in expected.events]

    def _row(self, job_id: int) -> Any:
        return self.ledger._store.read(lambda session: session.load([job_id], lock=False))[job_id]

    def _command(self, job: HeldJob, sent: Sent, counter: int, now: int, rev: int) -> c.Heartbeat:
        fence, holder = job.fence, Actor(Role.WORKER, sent.worker, sent.boot or job.fence.incarnation)
        token = {"": "", "its": fence.token}.get(sent.token, sent.token)
        command = c.Heartbeat(
            actor=holder,
            job_id=job.id,
            request_id=uuid.uuid4().hex,
            fence=Fence(job.id, fence.attempt + sent.attempt, token, sent.worker),
            beat=sent.beat,
            expected_rev=rev + 1 if sent.rev else None,
        )
        attempt = fence.attempt + sent.attempt
        said = holder_statement(self.ledger.id, command, holder, attempt, counter=counter, at=now + sent.skew_us)
        statement = encode_statement(said)
        signer = KEYS[sent.worker].secret
        assert signer is not None
        said = msgspec.structs.replace(said, **sent.extra)
        signed = Signed(signer.key_id, signer.sign(statement_message(statement)), statement, said, is_given=True)
        return msgspec.structs.replace(command, signed=signed)


def _bare(event: Any) -> Any:
    """An event without its position and without the signature of the system."""
    gone = {"key_id": None, "signature": None, "statement": None} if event.actor.role is Role.SYSTEM else {}
    return msgspec.structs.replace(event, pos=0, **gone)


@pytest.fixture
def side(store_url: str, clock: ManualClock) -> Iterator[Side]:
    with opened(store_url, clock) as ledger:
        enrol(ledger, [*ALL_KEYS, KEYS["w-2"]])
        yield Side(ledger, clock)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(policy=st.sampled_from(["none", "liveness", "all"]), sent=st.lists(SENT, min_size=1, max_size=8))
def test_the_statement_and_decide_agree(side: Side, policy: str, sent: list[Sent]):
    side.run(policy, sent)
