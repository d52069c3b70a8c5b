"""Verbs of the holder of a job, the gate among them, and events that holders or servers have signed elsewhere."""

from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Any

import msgspec

from holdfast.core import commands as c
from holdfast.core import limits, payloads, strict_json
from holdfast.core import policy as policies
from holdfast.core.decide import holder_of
from holdfast.core.liveness import LivenessHeartbeatReceiptV1, check_gate, receipt_of
from holdfast.core.model import EventType, FailureStage, Fence, Micros, ReasonCode, Role
from holdfast.core.model import JobRecord as Record
from holdfast.errors import HoldfastError, NotFound, SignatureInvalid, ValidationError
from holdfast.ledger import validate
from holdfast.ledger.base import JobOrFence, LedgerBase, WorkerActors, optional_reason, public_beat, public_change
from holdfast.ledger.commit import only_answer
from holdfast.ledger.public import Beat, Change, Event, Job, public_event
from holdfast.ledger.requests import Request
from holdfast.proof.envelopes import read_envelope
from holdfast.proof.signing import Signed, signed_content
from holdfast.proof.statements import EMPTY_SHA256, Statement
from holdfast.store.base import Session


class HolderVerbs(LedgerBase):
    def start(self, fence: Fence, *, request_id: str | None = None, expected_rev: int | None = None) -> Change:
        """User code begins."""
        command = c.Start(**self._holder(fence, request_id, expected_rev))
        return public_change(only_answer(self._pipeline.submit(self._quick("start", [command], request_id))))

    def heartbeat(
        self,
        fence: Fence,
        *,
        stage: str | None = None,
        progress: int | None = None,
        assist_requested: bool | None = None,
        checkpoint: Any = payloads.UNSET,
        undo: Mapping[str, Any] | None = None,
        request_id: str | None = None,
        expected_rev: int | None = None,
    ) -> Beat:
        """Proof of life: renews the lease and tells whether somebody wants the job cancelled.

        `checkpoint` is any JSON value, None among them, for whoever goes on with the job. `undo` is {"kind": …, "args": {…}}:
        what to do, newest first, if the job comes to nothing. Say it before the deed it takes back.
        """
        beat = validate.beat(stage, progress, assist_requested, checkpoint, undo)
        plain = beat.checkpoint is payloads.UNSET and beat.undo is payloads.UNSET
        command = c.Heartbeat(beat=beat, **self._holder(fence, request_id, expected_rev, draw=not plain))
        request = self._quick("heartbeat", [command], request_id, keep=undo is not None)
        return public_beat(only_answer(self._pipeline.submit(request)))

    def heartbeat_many(
        self, fences: Iterable[Fence | tuple[Fence, Mapping[str, Any]]], *, wait: bool = True
    ) -> list[Beat | HoldfastError]:
        """Beats for many leases, in chunks of 1,000. One answer each; a refused one does not hurt the others.

        A fence may come with what the beat is to tell: `(fence, {"stage": …, "progress": …})`. A job that another transaction
        has locked is tried again for some two seconds, after the others; with `wait=False` it is answered at once.
        """
        commands = _beats(validate.items("heartbeat_many", fences))
        return self._many("heartbeat", commands, None, public_beat, waits=validate.switch("wait", wait))

    def complete(
        self,
        fence: Fence,
        result: Any = None,
        *,
        gate: bool = False,
        request_id: str | None = None,
        expected_rev: int | None = None,
    ) -> Change:
        """Done. `result` is any JSON value. With `gate`, it is GateDenied unless the holder passes the gate at that moment.

        Where a validator or conflict detector of this ledger objects, it is RefusedByValidator, and the job stays running.
        """
        body = payloads.result_payload(validate.json_value("result", result, limits.PAYLOAD_BYTES_MAX))
        verb = c.CompleteGated if validate.switch("gate", gate) else c.Complete
        command = verb(payload=body, **self._holder(fence, request_id, expected_rev))
        request = self._quick("complete", self._weighed([command]), request_id)
        return public_change(only_answer(self._pipeline.submit(request)))

    def complete_many(
        self, results: Iterable[tuple[Fence, Any]], *, request_id: str | None = None
    ) -> list[Change | HoldfastError]:
        """Many completions, in chunks of 1,000. One answer each; a refused one does not hurt the others."""
        drawn = validate.request_id(request_id) or self._entropy.nonce()
        commands = _completions(c.Complete, results, drawn)
        limits.check_count("complete", len(commands), limits.WRITE_BATCH_MAX)
        return self._many("complete", self._weighed(commands), request_id, public_change)

    def settle_many(
        self,
        results: Iterable[tuple[Fence, Any]],
        *,
        request_id: str,
        told: Iterable[tuple[Fence, Mapping[str, Any]]] = (),
    ) -> list[HoldfastError | None]:
        """`complete_many` for a worker that may have to send it again: no answer is kept, the events themselves carry the id.

        Answers None for each that is completed, also if it was by this very id before. A job that another transaction has
        locked is not waited for: its answer is Unavailable with `locked`. No validator is run: the worker has run its own.

        `told` is what some of these holders said last, in the form of `heartbeat_many`. It is recorded as a beat right before the
        completion, in the same transaction.
        """
        commands = _completions(c.CompleteInBatch, results, limits.check_key("request_id", request_id))
        beats = _beats(validate.items("told", told)) if told != () else ()
        return self._many("complete", commands, None, lambda _: None, waits=False, beats=beats)

    def fail(
        self,
        fence: Fence,
        error: Any,
        *,
        retryable: bool = True,
        reason_code: ReasonCode | str | None = None,
        failure_stage: FailureStage | str | None = None,
        retry_after: Any = None,
        request_id: str | None = None,
        expected_rev: int | None = None,
    ) -> Job:
        """It went wrong. Retryable: tried again after a backoff (or `retry_after`) while attempts are left. Not retryable:
        failed, or dead-lettered where a `reason_code` says why no retry will mend it.

        `failure_stage` and `reason_code` are recorded with the error. Where no attempt is left, the dead letter has them.
        """
        after = None if retry_after is None else policies.duration_ms("retry_after", retry_after, 0, validate.DELAY_MS_MAX)
        command = c.Fail(
            error=validate.error_value(error),
            retryable=validate.switch("retryable", retryable),
            reason_code=None if reason_code is None else validate.choice("reason_code", ReasonCode, reason_code),
            failure_stage=None if failure_stage is None else validate.choice("failure_stage", FailureStage, failure_stage),
            retry_after_us=None if after is None else after * 1_000,
            jitter=self._entropy.jitter(),
            **self._holder(fence, request_id, expected_rev),
        )
        body = (command.error, retryable, reason_code, failure_stage, after)
        return self._on_job("fail", command, request_id, body)

    def release(
        self, fence: Fence, *, reason: str | None = None, request_id: str | None = None, expected_rev: int | None = None
    ) -> Job:
        """Hand the job back in order: it is ready for others at once, and the attempt does not count."""
        command = c.Release(reason=validate.reason_if_any(reason), **self._holder(fence, request_id, expected_rev))
        return self._on_job("release", command, request_id, optional_reason(reason))

    def acknowledge_cancel(
        self, fence: Fence, *, reason: str | None = None, request_id: str | None = None, expected_rev: int | None = None
    ) -> Job:
        """The safe exit is made: an aborting job becomes cancelled. `reason` is recorded beside the reason of the cancel."""
        command = c.AcknowledgeCancel(reason=validate.reason_if_any(reason), **self._holder(fence, request_id, expected_rev))
        return self._on_job("acknowledge_cancel", command, request_id, optional_reason(reason))


def _beats(fences: Iterable[Any]) -> list[c.Heartbeat]:
    actors = WorkerActors()
    return [
        c.Heartbeat(actor=actors[fence.worker], job_id=fence.job_id, fence=fence, beat=beat)
        for fence, beat in map(validate.fence_and_beat, fences)
    ]


def _completions(verb: type[c.Complete], results: Iterable[tuple[Fence, Any]], request_id: str) -> list[c.Complete]:
    actors = WorkerActors()
    return [
        verb(
            actor=actors[fence.worker],
            request_id=request_id,
            job_id=fence.job_id,
            fence=fence,
            payload=payloads.result_payload(validate.json_value("result", result, limits.PAYLOAD_BYTES_MAX)),
        )
        for fence, result in validate.pairs("complete_many", results)
    ]


class GateVerb(LedgerBase):
    def gate(self, job: JobOrFence) -> LivenessHeartbeatReceiptV1:
        """The receipt of whoever holds the job, if it is healthy, fresh and within its attempts; GateDenied otherwise.

        Asked with a fence, it is FenceLost unless that is the fence of the newest attempt. It changes nothing.
        """
        fence = validate.fence(job) if isinstance(job, Fence) else None
        job_id = validate.job_id(job) if fence is None else fence.job_id

        def work(session: Session) -> tuple[Record | None, Micros]:
            return session.load([job_id], lock=False).get(job_id), session.now()

        found, now = self._store.read(work)
        if found is None:
            raise NotFound(f"there is no job {job_id}", job_id=job_id)
        if fence is not None:
            holder_of(found, fence)
        return check_gate(found, receipt_of(found, now), now)


E = EventType


class AppendVerbs(LedgerBase):
    def append(self, envelope: Mapping[str, Any] | bytes | str, *, content: Any = payloads.UNSET) -> Event:
        """Record what somebody else has signed: a statement in our shape or the seed's, with its `keyId` and `signature`.

        From a holder: heartbeat, resumed, stalled, succeeded, requeued (a release), cancelled (a cancel acknowledged). It needs
        no token: see the guide on signed events. From a server: stalled, past the limit; resumed, after a beat that came after
        the stall. A holder's statement in our shape has only the hash of what is given with it; that comes as `content` (what a
        beat tells, a result, an error). Answers the last event that it made.
        The newest envelope of a job may be sent again after a lost answer, and is answered alike; an older one is refused.
        """
        signed = self._signer.admit(read_envelope(_object(envelope)))
        command = _command(signed, content)
        if isinstance(command, c.Complete):
            [command] = self._weighed([command])
        return public_event(only_answer(self._pipeline.submit(Request("append", [command]))))


def _object(given: Any) -> Any:
    if isinstance(given, bytes | str):
        try:
            body = given.encode() if isinstance(given, str) else given
        except UnicodeEncodeError:
            raise ValidationError("envelope holds a lone surrogate, which is not valid Unicode", field="envelope") from None
        return msgspec.json.decode(strict_json.check("envelope", body.strip(), limits.ENVELOPE_BYTES_MAX))
    return dict(given) if isinstance(given, Mapping) else given


def _command(signed: Signed, content: Any) -> c.JobCommand:
    said = signed.said
    asked: dict[str, Any] = {
        "actor": said.actor,
        "request_id": sha256(signed.statement).hexdigest()[:32],
        "job_id": said.job_id,
        "signed": signed,
    }
    if said.actor.role is Role.SYSTEM and said.type in (E.STALLED, E.RESUMED):
        if content is not payloads.UNSET:
            raise ValidationError(f"a server's {said.type.value} has no content", field="content")
        if said.type is E.RESUMED:
            return c.Resume(reason=said.reason, **asked)
        return c.Stall(reason=validate.stall_reason(said.reason), **asked)
    if said.actor.role is not Role.WORKER:
        raise ValidationError(f"append does not take {said.type.value} from {said.actor.role.value}", field="envelope")
    asked["fence"] = Fence(said.job_id, said.attempt, "", said.actor.name, said.actor.incarnation)
    command = _holder_command(said, content, asked)
    stated = EMPTY_SHA256 if said.payload_sha256 is None else said.payload_sha256
    if said.shape == "holdfast" and sha256(signed_content(command) or b"").hexdigest() != stated:
        raise SignatureInvalid("what was signed is not the hash of this content", why="payload", job_id=said.job_id)
    return command


def _holder_command(said: Statement, content: Any, asked: dict[str, Any]) -> c.JobCommand:
    has_content = content is not payloads.UNSET
    match said.type:
        case E.HEARTBEAT:
            return c.Heartbeat(beat=_beat(said, content if has_content else {}), **asked)
        case E.SUCCEEDED:
            result = validate.json_value("content", content if has_content else None, limits.PAYLOAD_BYTES_MAX)
            return c.Complete(payload=payloads.result_payload(result), **asked)
        case E.STALLED:
            error = validate.error_value(content) if has_content else None
            return c.Stall(reason=validate.stall_reason(said.reason), error=error, **asked)
    if has_content:
        raise ValidationError(f"{said.type.value} has no content", field="content")
    match said.type:
        case E.RESUMED:
            return c.Resume(reason=said.reason, **asked)
        case E.REQUEUED:
            return c.Release(reason=said.reason, **asked)
        case E.CANCELLED:
            return c.AcknowledgeCancel(**asked)
    raise ValidationError(f"append does not take {said.type.value}: use the verb", field="envelope")


def _beat(said: Statement, content: Any) -> payloads.BeatPayload:
    if said.shape == "seed":
        if content:
            raise ValidationError("a beat in the seed's shape says everything itself", field="content")
        return validate.beat(said.stage, said.progress, said.assist_requested)
    if not isinstance(content, Mapping) or not content.keys() <= {"stage", "progress", "assist_requested"}:
        raise ValidationError("a beat tells stage, progress, assist_requested", field="content")
    return validate.beat(content.get("stage"), content.get("progress"), content.get("assist_requested"))
