"""A holder's verbs."""

from collections.abc import Iterable, Mapping
from typing import Any

from holdfast.core import commands as c
from holdfast.core import limits, payloads
from holdfast.core import policy as policies
from holdfast.core.model import FailureStage, Fence, ReasonCode
from holdfast.errors import HoldfastError
from holdfast.ledger import admit
from holdfast.ledger.commit import only_answer
from holdfast.ledger.desk import Desk, Workers, beat_of, change_of, given
from holdfast.ledger.face import Beat, Change, Job


class Holding(Desk):
    def start(self, fence: Fence, *, request_id: str | None = None, expected_rev: int | None = None) -> Change:
        """User code begins."""
        command = c.Start(**self._holder(fence, request_id, expected_rev))
        return change_of(only_answer(self._pipeline.submit(self._quick("start", [command], request_id))))

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
        beat = admit.beat(stage, progress, assist_requested, checkpoint, undo)
        plain = beat.checkpoint is payloads.UNSET and beat.undo is payloads.UNSET
        command = c.Heartbeat(beat=beat, **self._holder(fence, request_id, expected_rev, draw=not plain))
        request = self._quick("heartbeat", [command], request_id, keep=undo is not None)
        return beat_of(only_answer(self._pipeline.submit(request)))

    def heartbeat_many(
        self, fences: Iterable[Fence | tuple[Fence, Mapping[str, Any]]], *, wait: bool = True
    ) -> list[Beat | HoldfastError]:
        """Beats for many leases, in chunks of 1,000. One answer each; a refused one does not hurt the others.

        A fence may come with what the beat is to tell: `(fence, {"stage": …, "progress": …})`. A job that another transaction
        has locked is tried again for some two seconds, after the others; with `wait=False` it is answered at once.
        """
        commands = _beats(admit.items("heartbeat_many", fences))
        return self._many("heartbeat", commands, None, beat_of, waits=admit.switch("wait", wait))

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
        body = payloads.result_payload(admit.json_value("result", result, limits.PAYLOAD_BYTES_MAX))
        verb = c.CompleteGated if admit.switch("gate", gate) else c.Complete
        command = verb(payload=body, **self._holder(fence, request_id, expected_rev))
        request = self._quick("complete", self._weighed([command]), request_id)
        return change_of(only_answer(self._pipeline.submit(request)))

    def complete_many(
        self, results: Iterable[tuple[Fence, Any]], *, request_id: str | None = None
    ) -> list[Change | HoldfastError]:
        """Many completions, in chunks of 1,000. One answer each; a refused one does not hurt the others."""
        drawn = admit.request_id(request_id) or self._entropy.nonce()
        commands = _completions(c.Complete, results, drawn)
        limits.check_count("complete", len(commands), limits.WRITE_BATCH_MAX)
        return self._many("complete", self._weighed(commands), request_id, change_of)

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
        commands = _completions(c.Settle, results, limits.check_key("request_id", request_id))
        beats = _beats(admit.items("told", told)) if told != () else ()
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
        after = None if retry_after is None else policies.duration_ms("retry_after", retry_after, 0, admit.DELAY_MS_MAX)
        command = c.Fail(
            error=admit.error_value(error),
            retryable=admit.switch("retryable", retryable),
            reason_code=None if reason_code is None else admit.choice("reason_code", ReasonCode, reason_code),
            failure_stage=None if failure_stage is None else admit.choice("failure_stage", FailureStage, failure_stage),
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
        command = c.Release(reason=admit.reason_if_any(reason), **self._holder(fence, request_id, expected_rev))
        return self._on_job("release", command, request_id, given(reason))

    def acknowledge_cancel(
        self, fence: Fence, *, reason: str | None = None, request_id: str | None = None, expected_rev: int | None = None
    ) -> Job:
        """The safe exit is made: an aborting job becomes cancelled. `reason` is recorded beside the reason of the cancel."""
        command = c.AcknowledgeCancel(reason=admit.reason_if_any(reason), **self._holder(fence, request_id, expected_rev))
        return self._on_job("acknowledge_cancel", command, request_id, given(reason))


def _beats(fences: Iterable[Any]) -> list[c.Heartbeat]:
    actors = Workers()
    return [
        c.Heartbeat(actor=actors[fence.worker], job_id=fence.job_id, fence=fence, beat=beat)
        for fence, beat in map(admit.telling, fences)
    ]


def _completions(verb: type[c.Complete], results: Iterable[tuple[Fence, Any]], request_id: str) -> list[c.Complete]:
    actors = Workers()
    return [
        verb(
            actor=actors[fence.worker],
            request_id=request_id,
            job_id=fence.job_id,
            fence=fence,
            payload=payloads.result_payload(admit.json_value("result", result, limits.PAYLOAD_BYTES_MAX)),
        )
        for fence, result in admit.pairs("complete_many", results)
    ]
