"""Verbs of a job's holder, the liveness gate, and `append`, which records events signed by another process."""

from collections.abc import Container, Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any

import msgspec

from holdfast.core import commands as c
from holdfast.core import limits, payloads, strict_json
from holdfast.core import policy as policies
from holdfast.core.decide import holder_of
from holdfast.core.liveness import LivenessHeartbeatReceiptV1, check_gate, receipt_of
from holdfast.core.model import EventType, FailureStage, Fence, ReasonCode, Role
from holdfast.errors import HoldfastError, SignatureInvalid, ValidationError
from holdfast.ledger import validate
from holdfast.ledger.base import JobOrFence, LedgerBase, WorkerActors, public_beat, public_change
from holdfast.ledger.commit import only_answer
from holdfast.ledger.public import Beat, Change, ClaimedJob, Event, HeldJob, Job, public_event
from holdfast.ledger.requests import Request
from holdfast.proof.envelopes import read_envelope
from holdfast.proof.signing import Signed, signed_payload
from holdfast.proof.statements import EMPTY_SHA256, Statement
from holdfast.store.rows import row_attempt


class HolderVerbs(LedgerBase):
    def start(self, fence: Fence, *, request_id: str | None = None, expected_rev: int | None = None) -> Change:
        """Record that user code begins: the job is running, and its lease is renewed."""
        command = c.Start(**self._holder(fence, request_id, expected_rev))
        return public_change(only_answer(self._pipeline.submit(self._hot_request("start", [command], request_id))))

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
        """Renew the lease. The answer says whether a cancel was requested.

        `checkpoint` is any JSON value, including None. The next holder of the job can read it. `undo` registers an undo step,
        {"kind": …, "args": {…}}. If the job does not succeed, its undo steps run, the newest first. Register a step before
        the action that it reverses.
        """
        beat = validate.beat(stage, progress, assist_requested, checkpoint, undo)
        plain = beat.checkpoint is payloads.UNSET and beat.undo is payloads.UNSET
        command = c.Heartbeat(beat=beat, **self._holder(fence, request_id, expected_rev, draw=not plain))
        request = self._hot_request("heartbeat", [command], request_id, keep=undo is not None)
        return public_beat(only_answer(self._pipeline.submit(request)))

    def heartbeat_many(
        self, fences: Iterable[Fence | tuple[Fence, Mapping[str, Any]]], *, wait: bool = True
    ) -> list[Beat | HoldfastError]:
        """Send heartbeats for many leases, in chunks of 1,000. Return one answer each. A refusal does not affect the others.

        An item is a fence, or a fence with the heartbeat's fields: `(fence, {"stage": …, "progress": …})`. A job that another
        transaction has locked is retried for about two seconds, after the others. With `wait=False` it is refused at once.
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
        """Complete the job with `result`, which is any JSON value.

        With `gate`, raise GateDenied unless the holder passes the liveness gate in the same transaction. If a validator or a
        conflict detector of this ledger objects, raise RefusedByValidator. The job stays running in both cases.
        """
        body = payloads.result_payload(validate.json_value("result", result, limits.PAYLOAD_BYTES_MAX))
        verb = c.CompleteGated if validate.switch("gate", gate) else c.Complete
        command = verb(payload=body, **self._holder(fence, request_id, expected_rev))
        request = self._hot_request("complete", self._validated([command]), request_id)
        return public_change(only_answer(self._pipeline.submit(request)))

    def complete_many(
        self, results: Iterable[tuple[Fence, Any]], *, request_id: str | None = None
    ) -> list[Change | HoldfastError]:
        """Complete many jobs, in chunks of 1,000. Return one answer each. A refusal does not affect the others."""
        drawn = validate.request_id(request_id) or self._entropy.nonce()
        commands = _completions(c.Complete, results, drawn)
        limits.check_count("complete", len(commands), limits.WRITE_BATCH_MAX)
        return self._many("complete", self._validated(commands), request_id, public_change)

    def settle_many(
        self,
        results: Iterable[tuple[Fence, Any]],
        *,
        request_id: str,
        heartbeats: Iterable[tuple[Fence, Mapping[str, Any]]] = (),
    ) -> list[HoldfastError | None]:
        """Complete many jobs for a worker that may have to repeat the call.

        No answer is kept: the events carry the request id. The answer is None for each job that is completed, also if an
        earlier call with this id completed it. A job that another transaction has locked is not waited for: its answer is
        Unavailable with `locked`. No validator is run, because the worker has run its own.

        `heartbeats` has the last heartbeats of some of these jobs, in the form of `heartbeat_many`. Each is recorded right before
        the completion, in the same transaction.
        """
        commands = _completions(c.Settle, results, limits.check_key("request_id", request_id))
        beats = _beats(validate.items("heartbeats", heartbeats)) if heartbeats != () else ()
        return self._many("complete", commands, None, lambda _: None, waits=False, beats=beats)

    def settle_alike(self, jobs: Sequence[HeldJob], result: Any, *, request_id: str) -> Container[int] | None:
        """Complete jobs of one claim with the same result, in one statement. It is for workers, like `settle_many`.

        The jobs are from one answer of `claim`, all in their first attempt or all in the same later one, and none of them has to
        be signed. Return None if all jobs are completed, else the ids of those that are. Pass the others to `settle_many`
        with the same request id: its answers say why a job is not completed, or that it is after all.
        """
        limits.check_key("request_id", request_id)
        given = list(validate.items("settle_alike", jobs))
        found = {(job.claim, row_attempt(job.row)) for job in given if isinstance(job, ClaimedJob)}
        if len(found) != 1 or not all(isinstance(job, ClaimedJob) for job in given):
            raise ValidationError("jobs must be from one answer of claim, in the same attempt", field="jobs")
        [(claim, attempt)] = found
        payload = payloads.result_payload(validate.json_value("result", result, limits.PAYLOAD_BYTES_MAX))
        if claim.is_signed:
            return ()
        return self._pipeline.settle_alike(sorted([job.id for job in given]), claim.command.token, attempt, payload, request_id)

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
        """Report that the attempt failed with `error`: an exception, a text or a JSON object.

        If `retryable` is true and attempts are left, the job is queued again after a backoff, or after `retry_after`. If it is
        false, the job is failed, or dead-lettered if `reason_code` says why a retry cannot help.

        `failure_stage` and `reason_code` are recorded with the error. If no attempt is left, they are in the dead letter.
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
        """Return the job to its queue. It can be claimed at once, and the attempt does not count against `attempts_max`."""
        command = c.Release(reason=validate.reason_if_any(reason), **self._holder(fence, request_id, expected_rev))
        return self._on_job("release", command, request_id, (reason,))

    def acknowledge_cancel(
        self, fence: Fence, *, reason: str | None = None, request_id: str | None = None, expected_rev: int | None = None
    ) -> Job:
        """Acknowledge a soft cancel: the holder has stopped, and the job becomes cancelled.

        `reason` is recorded beside the reason of the cancel.
        """
        command = c.AcknowledgeCancel(reason=validate.reason_if_any(reason), **self._holder(fence, request_id, expected_rev))
        return self._on_job("acknowledge_cancel", command, request_id, (reason,))


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
        """Return the holder's heartbeat receipt if it is healthy, fresh and within its attempts. Raise GateDenied otherwise.

        Given a fence instead of an id, raise FenceLost if it is not the fence of the newest attempt. Nothing is changed.
        """
        fence = validate.fence(job) if isinstance(job, Fence) else None
        job_id = validate.job_id(job) if fence is None else fence.job_id

        found, now = self._store.read(lambda session: (session.load_one(job_id), session.now()))
        if fence is not None:
            holder_of(found, fence)
        return check_gate(found, receipt_of(found, now), now)


E = EventType


class AppendVerbs(LedgerBase):
    def append(self, envelope: Mapping[str, Any] | bytes | str, *, content: Any = payloads.UNSET) -> Event:
        """Record a statement that another process has signed, and return the last event that it made.

        The envelope is a statement in Holdfast's own form or in that for robots, with `keyId` and `signature`. A holder may sign
        heartbeat, resumed, stalled, succeeded, requeued (a release) and cancelled (an acknowledged cancel). No token is needed:
        see the guide on signed events. A server may sign stalled, past the limit, and resumed, after a heartbeat that came after
        the stall.

        A holder's statement in Holdfast's shape has only the hash of its content. Pass the content itself as `content`: the
        fields of a heartbeat, a result, or an error. The newest envelope of a job may be sent again after a lost answer, and gets
        the same answer. An older one is refused.
        """
        signed = self._signer.admit(read_envelope(signed_object(envelope)))
        command = _command(signed, content)
        if isinstance(command, c.Complete):
            [command] = self._validated([command])
        return public_event(only_answer(self._pipeline.submit(Request("append", [command]))))


def signed_object(given: Any) -> Any:
    """Return an envelope as an object. It is given as one, or as JSON."""
    if isinstance(given, bytes | str):
        try:
            body = given.encode() if isinstance(given, str) else given
        except UnicodeEncodeError:
            raise ValidationError("envelope holds a lone surrogate, which is not valid Unicode", field="envelope") from None
        return msgspec.json.decode(strict_json.check("envelope", body.strip(), limits.ENVELOPE_BYTES_MAX))
    return dict(given) if isinstance(given, Mapping) else given


def _command(signed: Signed, content: Any) -> c.JobCommand:
    statement = signed.content
    fields: dict[str, Any] = {
        "actor": statement.actor,
        "request_id": sha256(signed.statement).hexdigest()[:32],
        "job_id": statement.job_id,
        "signed": signed,
    }
    if statement.actor.role is Role.SYSTEM and statement.type in (E.STALLED, E.RESUMED):
        if content is not payloads.UNSET:
            raise ValidationError(f"a server's {statement.type.value} has no content", field="content")
        if statement.type is E.RESUMED:
            return c.Resume(reason=statement.reason, **fields)
        return c.Stall(reason=validate.stall_reason(statement.reason), **fields)
    if statement.actor.role is not Role.WORKER:
        raise ValidationError(f"append does not take {statement.type.value} from {statement.actor.role.value}", field="envelope")
    fields["fence"] = Fence(statement.job_id, statement.attempt, "", statement.actor.name, statement.actor.incarnation)
    command = _holder_command(statement, content, fields)
    stated = EMPTY_SHA256 if statement.payload_sha256 is None else statement.payload_sha256
    if statement.shape == "holdfast" and sha256(signed_payload(command) or b"").hexdigest() != stated:
        raise SignatureInvalid("the signed hash is not the hash of this content", why="payload", job_id=statement.job_id)
    return command


def _holder_command(statement: Statement, content: Any, fields: dict[str, Any]) -> c.JobCommand:
    has_content = content is not payloads.UNSET
    match statement.type:
        case E.HEARTBEAT:
            return c.Heartbeat(beat=_beat(statement, content if has_content else {}), **fields)
        case E.SUCCEEDED:
            result = validate.json_value("content", content if has_content else None, limits.PAYLOAD_BYTES_MAX)
            return c.Complete(payload=payloads.result_payload(result), **fields)
        case E.STALLED:
            error = validate.error_value(content) if has_content else None
            return c.Stall(reason=validate.stall_reason(statement.reason), error=error, **fields)
    if has_content:
        raise ValidationError(f"{statement.type.value} has no content", field="content")
    match statement.type:
        case E.RESUMED:
            return c.Resume(reason=statement.reason, **fields)
        case E.REQUEUED:
            return c.Release(reason=statement.reason, **fields)
        case E.CANCELLED:
            return c.AcknowledgeCancel(**fields)
    raise ValidationError(f"append does not take {statement.type.value}: use the verb", field="envelope")


def _beat(statement: Statement, content: Any) -> payloads.BeatPayload:
    if statement.shape == "seed":
        if content:
            raise ValidationError("a heartbeat in the form for robots has no content beside it", field="content")
        return validate.beat(statement.stage, statement.progress, statement.assist_requested)
    if not isinstance(content, Mapping) or not content.keys() <= {"stage", "progress", "assist_requested"}:
        raise ValidationError("the fields of a heartbeat are stage, progress, assist_requested", field="content")
    return validate.beat(content.get("stage"), content.get("progress"), content.get("assist_requested"))
