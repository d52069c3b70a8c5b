"""Routes of workers: claims, heartbeats, outcomes, signed events."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec

from holdfast.core import limits
from holdfast.core.liveness import LivenessHeartbeatReceiptV1
from holdfast.core.model import Actor, Role
from holdfast.errors import Forbidden, HoldfastError, SignatureInvalid, ValidationError
from holdfast.proof.envelopes import read_envelope
from holdfast.proof.statements import read_statement
from holdfast.server import bodies as b
from holdfast.server.call import Call, Reply
from holdfast.server.problems import problem
from holdfast.server.routes import route
from holdfast.shapes import EventAnswer, answer_shape, claimed_job_view, work_views


@route("POST", "/v1/claims", "worker", body=b.ClaimBody, query=b.ClaimsQuery, answer=b.ClaimsAnswer, awaits=True)
async def claim(call: Call) -> Any:
    """Claim jobs that are ready. With `wait_s`, wait for some if there are none."""
    for queue in call.body.queues:
        call.see_queue(queue)
    if not 0 <= call.body.wait_s <= limits.HTTP_WAIT_SECONDS_MAX:
        raise ValidationError(f"wait_s is from 0 to {limits.HTTP_WAIT_SECONDS_MAX:g}", field="wait_s")
    jobs = await call.server.claims.claim(call)
    call.exchange.record.found_nothing = not jobs
    if call.query.return_ == "work":
        return {"work": work_views(jobs)}
    return {"jobs": [claimed_job_view(job) for job in jobs]}


@route("POST", "/v1/jobs/{job_id}/claim", "worker", body=b.ClaimJobBody, answer=b.ClaimedAnswer)
def claim_job(call: Call) -> Reply:
    """Claim one job."""
    worker = call.worker
    job = call.ledger.claim_job(
        call.check_visible(),
        worker.name,
        ttl=call.body.ttl,
        labels=call.body.labels,
        incarnation=worker.incarnation,
        request_id=call.request_id,
        expected_rev=call.expected_rev,
    )
    return Reply({"job": claimed_job_view(job)}, headers={"ETag": f'"{job.rev}"'})


def _fenced(call: Call, **more: Any) -> dict[str, Any]:
    return {"request_id": call.request_id, "expected_rev": call.expected_rev, **more}


@route("POST", "/v1/jobs/{job_id}/start", "worker", body=b.FenceBody, answer=b.ChangeAnswer)
def start(call: Call) -> Reply:
    """Start the work on a claimed job."""
    return _change(call.ledger.start(call.held(), **_fenced(call)))


def _change(change: Any) -> Reply:
    return Reply({"change": change}, headers={"ETag": f'"{change.rev}"'})


@route("POST", "/v1/jobs/{job_id}/heartbeat", "worker", body=b.HeartbeatBody, answer=b.HeartbeatAnswer, pool="beat")
def heartbeat(call: Call) -> Reply:
    """Renew the lease, and record progress."""
    fields = msgspec.structs.asdict(call.body)
    del fields["fence"], fields["proof"]
    if fields["checkpoint"] == b.ABSENT:
        del fields["checkpoint"]
    beat = call.ledger.heartbeat(call.held(), **_fenced(call, **fields))
    return Reply({"beat": beat}, headers={"ETag": f'"{beat.rev}"'})


@route("POST", "/v1/jobs/{job_id}/complete", "worker", body=b.CompleteBody, answer=b.ChangeAnswer)
def complete(call: Call) -> Reply:
    """Complete a job with its result."""
    fence = call.held()
    return _change(call.ledger.complete(fence, b.checked(call.body.result), **_fenced(call, gate=call.body.gate)))


@route("POST", "/v1/jobs/{job_id}/fail", "worker", body=b.FailBody, answer=b.JobOnly)
def fail(call: Call) -> Reply:
    """Record that the attempt failed. It is retried if attempts are left."""
    fields = msgspec.structs.asdict(call.body) | {"error": b.error_sent(call.body.error)}
    del fields["fence"], fields["proof"]
    return call.changed(call.ledger.fail(call.held(), **_fenced(call, **fields)))


@route("POST", "/v1/jobs/{job_id}/release", "worker", body=b.FenceBody, answer=b.JobOnly)
def release(call: Call) -> Reply:
    """Give a job back without an outcome."""
    fence = call.held()
    return call.changed(call.ledger.release(fence, **_fenced(call, reason=call.body.reason)))


@route("POST", "/v1/jobs/{job_id}/acknowledge-cancel", "worker", body=b.FenceBody, answer=b.JobOnly)
def acknowledge_cancel(call: Call) -> Reply:
    """Confirm that the work has stopped after a request to cancel."""
    fence = call.held()
    return call.changed(call.ledger.acknowledge_cancel(fence, **_fenced(call, reason=call.body.reason)))


@route("POST", "/v1/jobs/{job_id}/stall", "worker", body=b.StallBody, answer=b.JobOnly)
def stall(call: Call) -> Reply:
    """Report a stall: the holder with its fence, or an operator once the job is past a limit."""
    fields = msgspec.structs.asdict(call.body) | {"error": b.error_sent(call.body.error)}
    del fields["fence"], fields["proof"]
    return call.changed(call.ledger.stall(_target(call), **_outside(call, **fields)))


@route("POST", "/v1/jobs/{job_id}/resume", "worker", body=b.ResumeBody, answer=b.JobOnly)
def resume(call: Call) -> Reply:
    """Resume a stalled job: the holder with its fence, or an operator."""
    return call.changed(call.ledger.resume(_target(call), **_outside(call, reason=call.body.reason)))


def _target(call: Call) -> Any:
    if call.body.fence is not None:
        return call.held()
    if call.body.proof is not None:
        raise ValidationError("a proof is sent with the fence of its holder", field="proof")
    if not call.principal.may("operator"):
        raise Forbidden("without a fence only an operator can do this", allowed=["operator"])
    return call.check_visible()


def _outside(call: Call, **more: Any) -> dict[str, Any]:
    """Return the options of a verb that holders and others share. A holder is named by its fence.

    Without a fence it is the system that acts, on behalf of the caller.
    """
    return _fenced(call, **more) if call.body.fence is not None else _fenced(call, actor=call.actor.name, **more)


Gated = answer_shape("Gated", job_id=int, receipt=dict[str, Any])


@route("GET", "/v1/jobs/{job_id}/gate", "reader", answer=Gated, verb="read")
def gate_of(call: Call) -> Any:
    """Return the newest liveness receipt of a job, if it allows the work to go on."""
    job_id = call.check_visible()
    return {"job_id": job_id, "receipt": _receipt(call.ledger.gate(job_id))}


@route("POST", "/v1/jobs/{job_id}/gate", "worker", body=b.GateBody, answer=Gated, pool="read")
def gate(call: Call) -> Any:
    """Return the liveness receipt of the holder, if it may go on."""
    return {"job_id": call.job_id, "receipt": _receipt(call.ledger.gate(call.fence(call.body.fence, call.job_id)))}


def _receipt(receipt: LivenessHeartbeatReceiptV1) -> Any:
    return msgspec.Raw(receipt.to_json().encode())


# Many at once


@route(
    "POST",
    "/v1/heartbeats",
    "worker",
    body=b.HeartbeatsBody,
    answer=b.BeatsAnswer,
    pool="beat",
    verb="heartbeat",
    body_bytes_max=limits.HTTP_BATCH_BYTES_MAX,
)
def heartbeat_many(call: Call) -> Any:
    """Renew many leases in one call. Each has its own answer."""
    given: list[Any] = [call.fence(fence) for fence in call.body.fences]
    given += _beats(call)
    return {"answers": [_one(call, "beat", answer) for answer in call.ledger.heartbeat_many(given, wait=call.body.wait)]}


def _beats(call: Call) -> list[Any]:
    """Return the heartbeats with fields, as the ledger takes them."""
    pairs = []
    for entry in call.body.beats:
        fields = {name: getattr(entry, name) for name in ("stage", "progress", "assist_requested")}
        pairs.append(
            (call.fence(entry.fence, proof=entry.proof), {name: value for name, value in fields.items() if value is not None})
        )
    return pairs


def _one(call: Call, name: str, answer: Any) -> dict[str, Any]:
    return {"problem": problem(call.shown(answer))} if isinstance(answer, HoldfastError) else {name: answer}


@route(
    "POST",
    "/v1/completions",
    "worker",
    body=b.CompletionsBody,
    answer=b.CompletionsAnswer,
    verb="complete",
    body_bytes_max=limits.HTTP_BATCH_BYTES_MAX,
)
def complete_many(call: Call) -> Any:
    """Complete many jobs in one call. Each has its own answer."""
    results = [(call.fence(entry.fence, proof=entry.proof), b.checked(entry.result)) for entry in call.body.completions]
    if not call.body.settle:
        changes = call.ledger.complete_many(results, request_id=call.request_id)
        return {"answers": [_one(call, "change", answer) for answer in changes]}
    settled: Sequence[HoldfastError | None] = call.ledger.settle_many(
        results, request_id=call.request_id or "", heartbeats=_beats(call)
    )
    return {"answers": [{} if answer is None else {"problem": problem(call.shown(answer))} for answer in settled]}


# Signed events


@route(
    "POST",
    "/v1/jobs/{job_id}/events",
    "worker",
    body=dict,
    answer=EventAnswer,
    status=201,
    body_bytes_max=limits.HTTP_ENVELOPE_BYTES_MAX,
)
def append(call: Call) -> Any:
    """Record an event that its signer has signed, in Holdfast's shape or in the robots'."""
    given = call.body
    has_content = given.keys() == {"envelope", "content"}
    envelope = given["envelope"] if has_content or given.keys() == {"envelope"} else given
    statement = read_statement(read_envelope(envelope).statement)
    if statement.job_id != call.job_id:
        raise SignatureInvalid(f"this was signed for job {statement.job_id}, not for job {call.job_id}", why="job")
    _check_sender(call, statement.actor)
    event = call.run(partial(call.ledger.append, envelope, **({"content": given["content"]} if has_content else {})))
    return Reply({"event": event}, status=200 if call.is_repeated else 201)


def _check_sender(call: Call, signer: Actor) -> None:
    """Raise Forbidden unless the caller is the worker that signed. What another server has signed, an operator may send."""
    if signer.role is Role.WORKER:
        if call.worker.name != signer.name:
            raise Forbidden(f"this was signed by {signer}, and the caller is worker {call.worker.name}")
    elif not call.principal.may("operator"):
        raise Forbidden("only an operator can send what a server has signed", allowed=["operator"])
