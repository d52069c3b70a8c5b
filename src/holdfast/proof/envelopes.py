"""Envelopes: a statement as a JSON object, together with its key id and signature."""

import re
from typing import Any, NamedTuple

from holdfast.core.model import EventType, Micros
from holdfast.core.vocabulary import Dialect, event_name
from holdfast.errors import LimitExceeded, SignatureInvalid, ValidationError
from holdfast.proof.encoding import canonical, from_base64, to_base64, to_iso
from holdfast.proof.keys import KEY_ID_DIGITS, SIGNATURE_BYTES, SecretKey
from holdfast.proof.statements import RESUMED_NAME, STALLED_NAME, STATEMENT_BYTES_MAX, statement_message

_KEY_ID = re.compile(rf"[0-9a-f]{{{KEY_ID_DIGITS}}}")


class Envelope(NamedTuple):
    statement: bytes
    key_id: str
    signature: bytes


def read_envelope(given: Any) -> Envelope:
    """Return the parts of an envelope. The content of the statement is not checked."""
    if not isinstance(given, dict):
        raise ValidationError("an envelope is an object", field="envelope")
    fields = dict(given)
    key_id, signature = fields.pop("keyId", None), fields.pop("signature", None)
    absent = [name for name, value in (("keyId", key_id), ("signature", signature)) if value is None]
    if absent:
        words = f"the envelope is not signed: {' and '.join(absent)} {'is' if len(absent) == 1 else 'are'} missing"
        raise SignatureInvalid(words, why="missing", fields=absent)
    body = canonical(fields)
    if len(body) > STATEMENT_BYTES_MAX:
        limit = STATEMENT_BYTES_MAX
        raise LimitExceeded(f"a statement has at most {limit} bytes", field="envelope", actual=len(body), limit=limit)
    return read_parts(body, key_id, signature)


def read_parts(statement: bytes, key_id: Any, signature: Any) -> Envelope:
    """Return an envelope whose statement is given as it was signed. The content of the statement is not checked."""
    if not isinstance(key_id, str) or not _KEY_ID.fullmatch(key_id):
        raise ValidationError(f"the id of a key must be {KEY_ID_DIGITS} hex digits", field="keyId")
    found = from_base64("signature", signature) if isinstance(signature, str) else b""
    if len(found) != SIGNATURE_BYTES:
        raise ValidationError(f"a signature has {SIGNATURE_BYTES} bytes, in base64", field="signature")
    return Envelope(statement, key_id, found)


def sign_envelope(fields: dict[str, Any], secret: SecretKey) -> dict[str, Any]:
    """Return the signed envelope of the statement with these fields."""
    signature = secret.sign(statement_message(canonical(fields)))
    return fields | {"keyId": secret.key_id, "signature": to_base64(signature)}


def server_stall_envelope(
    secret: SecretKey,
    *,
    ledger_id: str,
    job_id: int,
    attempt: int,
    rev: int,
    server: str,
    robot: str,
    at: Micros,
    last_beat_at: Micros,
    heartbeat_interval_ms: int,
    stall_after_ms: int,
    reason: str = "NO_HEARTBEAT",
) -> dict[str, Any]:
    """Return a server's envelope, in the form for robots, that a robot is silent. `rev` is the one that the event will have."""
    payload = {
        "robotId": robot,
        "detectedAt": to_iso(at),
        "reason": reason,
        "lastHeartbeatAt": to_iso(last_beat_at),
        "policy": {"heartbeatIntervalMs": heartbeat_interval_ms, "stallAfterMs": stall_after_ms},
    }
    return _envelope(secret, STALLED_NAME, at, ("server", server), job_id, payload, ledger=ledger_id, attempt=attempt, rev=rev)


def server_resume_envelope(
    secret: SecretKey, *, ledger_id: str, job_id: int, attempt: int, rev: int, server: str, robot: str, at: Micros
) -> dict[str, Any]:
    """Return a server's envelope, in the form for robots, that a stalled robot has resumed. `rev` is that of the new event."""
    payload = {"robotId": robot, "t": to_iso(at)}
    return _envelope(secret, RESUMED_NAME, at, ("server", server), job_id, payload, ledger=ledger_id, attempt=attempt, rev=rev)


def robot_envelope(
    secret: SecretKey,
    *,
    ledger_id: str,
    job_id: int,
    attempt: int,
    robot: str,
    incarnation: str,
    counter: int,
    at: Micros,
    kind: EventType = EventType.HEARTBEAT,
    stage: str | None = None,
    progress: int | None = None,
    assist_requested: bool | None = None,
) -> dict[str, Any]:
    """Return a robot's envelope in the form for robots: a beat, or `resumed`."""
    beat = {"stage": stage, "progress": progress, "assistRequested": assist_requested}
    payload = {"robotId": robot, "t": to_iso(at)} | {name: value for name, value in beat.items() if value is not None}
    binding = {"ledger": ledger_id, "attempt": attempt, "incarnation": incarnation, "counter": counter}
    return _envelope(secret, event_name(Dialect.LIVENESS, kind), at, ("robot", robot), job_id, payload, **binding)


def _envelope(
    secret: SecretKey, name: str, at: Micros, actor: tuple[str, str], job_id: int, payload: dict[str, Any], **binding: Any
) -> dict[str, Any]:
    who = dict(zip(("type", "id"), actor, strict=True))
    fields = {"type": name, "at": to_iso(at), "actor": who, "payload": {"jobId": str(job_id), **payload}, "binding": binding}
    return sign_envelope(fields, secret)
