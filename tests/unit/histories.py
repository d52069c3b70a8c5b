"""One job driven through the core alone, its events kept as a store would keep them."""

from typing import Any, Self

import msgspec
import pytest

from holdfast.core import commands as c
from holdfast.core import payloads
from holdfast.core.decide import decide, enqueued_event
from holdfast.core.evolve import evolve
from holdfast.core.model import SYSTEM, Actor, EventRecord, EventType, Fence, JobRecord, Policy, Role
from holdfast.errors import HoldfastError

T0 = 1_767_225_600_000_000
SECOND = 1_000_000
CLIENT, OPERATOR = Actor(Role.CLIENT, "shop"), Actor(Role.OPERATOR, "ann")
WORKER = Actor(Role.WORKER, "w-1", "boot-1")
ERROR = b'{"message":"x"}'
POLICY = Policy()
WINDOW = Policy(resume_window_ms=60_000)


class History:
    """Each verb records what the core decides. `wait` advances the time."""

    def __init__(self, policy: Policy = POLICY, /, **options: Any) -> None:
        self.policy = policy
        self.now = T0
        kind = options.pop("kind", "k")
        payload = payloads.EnqueuedPayload(queue="q", kind=kind, args=msgspec.Raw(b'{"n":1}'), **options).encode()
        command = c.Enqueue(actor=CLIENT, queue="q", kind=kind, payload=payload)
        first = enqueued_event(7, command, T0, "corr-7")
        self.events: list[EventRecord] = [first]
        self.job: JobRecord = evolve(None, first)

    @property
    def fence(self) -> Fence:
        return Fence(7, self.job.attempt, self.job.token or "", "w-1")

    @property
    def types(self) -> list[str]:
        return [event.type.value for event in self.events]

    def wait(self, seconds: float) -> Self:
        self.now += round(seconds * SECOND)
        return self

    def do(self, kind: type[c.JobCommand], **fields: Any) -> Self:
        """Decide a command. The actor is the holder if the command has a fence and no other actor is given."""
        if "actor" not in fields:
            fields["actor"] = WORKER
            if "fence" in kind.__struct_fields__:
                fields.setdefault("fence", self.fence)
        outcome = decide(self.job, kind(job_id=7, **fields), self.now)
        self.events += outcome.events
        self.job = outcome.job
        return self

    def claim(self, actor: Actor = WORKER, **fields: Any) -> Self:
        fields = {"token": f"token-{self.job.attempt + 1}", "policy": self.policy} | fields
        return self.do(c.ClaimJob, actor=actor, **fields)

    def start(self) -> Self:
        return self.claim().do(c.Start)

    def beat(self, **fields: Any) -> Self:
        return self.do(c.Heartbeat, beat=payloads.BeatPayload(**fields))

    def stall(self) -> Self:
        return self.do(c.Stall)

    def complete(self, result: bytes = b"1") -> Self:
        return self.do(c.Complete, payload=payloads.result_payload(result))

    def fail(self, **fields: Any) -> Self:
        return self.do(c.Fail, **{"error": ERROR} | fields)

    def cancel(self, **fields: Any) -> Self:
        return self.do(c.Cancel, **{"actor": CLIENT} | fields)

    def sweep(self, **fields: Any) -> Self:
        return self.do(c.Sweep, actor=SYSTEM, **fields)


STEP = payloads.UndoStep(kind="delete", args=msgspec.Raw(b'{"id":1}'))


def rich(policy: Policy = WINDOW) -> History:
    """A valid history with nearly every type of event."""
    history = History(policy).start().wait(1).beat(stage="A", progress=1, undo=STEP).do(c.Assist, actor=OPERATOR, on=True)
    history.do(c.Assist, actor=OPERATOR, on=False).wait(31).sweep().beat().sweep().do(c.Release)
    history.wait(1).start().fail().wait(60).start().cancel(reason="enough").wait(1)
    history.beat(checkpoint=msgspec.Raw(b"[1]"), assist_requested=True)
    return history.do(c.AcknowledgeCancel).do(c.Annotate, actor=OPERATOR, note=EventType.DISCARDED)


def refusal_of(history: History, kind: type[c.JobCommand], **fields: Any) -> HoldfastError:
    """The refusal of a command. The job does not change."""
    before = history.job
    with pytest.raises(HoldfastError) as caught:
        history.do(kind, **fields)
    assert history.job is before
    return caught.value


def code_of(history: History, kind: type[c.JobCommand], **fields: Any) -> str:
    return refusal_of(history, kind, **fields).code
