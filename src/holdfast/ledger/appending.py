"""Signed events from elsewhere: a robot's beat, a server's verdict. They go through the same door as every verb."""

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import msgspec

from holdfast.core import commands as c
from holdfast.core import limits, payloads, strictjson
from holdfast.core.model import EventType, Fence, Role
from holdfast.core.proof.envelopes import read_envelope
from holdfast.core.proof.signed import Signed
from holdfast.core.proof.stated import EMPTY_SHA256, Statement
from holdfast.core.signing import content_of
from holdfast.errors import SignatureInvalid, ValidationError
from holdfast.ledger import admit
from holdfast.ledger.commit import only_answer
from holdfast.ledger.desk import Desk
from holdfast.ledger.face import Event, public_event
from holdfast.ledger.requests import Request

E = EventType


class Appending(Desk):
    def append(self, envelope: Mapping[str, Any] | bytes | str, *, content: Any = payloads.UNSET) -> Event:
        """Record what somebody else has signed: a statement in our shape or the seed's, with its `keyId` and `signature`.

        From a holder: heartbeat, resumed, stalled, succeeded, requeued (a release), cancelled (a cancel acknowledged). It needs
        no token: see the guide on signed events. From a server: stalled, past the limit; resumed, after a beat that came after
        the stall. A holder's statement in our shape has only the hash of what is given with it; that comes as `content` (what a
        beat tells, a result, an error). Answers the last event that it made.
        The newest envelope of a job may be sent again after a lost answer, and is answered alike; an older one is refused.
        """
        signed = self._notary.admit(read_envelope(_object(envelope)))
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
        return msgspec.json.decode(strictjson.check("envelope", body.strip(), limits.ENVELOPE_BYTES_MAX))
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
        return c.Stall(reason=admit.stall_reason(said.reason), **asked)
    if said.actor.role is not Role.WORKER:
        raise ValidationError(f"append does not take {said.type.value} from {said.actor.role.value}", field="envelope")
    asked["fence"] = Fence(said.job_id, said.attempt, "", said.actor.name, said.actor.incarnation)
    command = _holders(said, content, asked)
    stated = EMPTY_SHA256 if said.payload_sha256 is None else said.payload_sha256
    if said.shape == "holdfast" and sha256(content_of(command) or b"").hexdigest() != stated:
        raise SignatureInvalid("what was signed is not the hash of this content", why="payload", job_id=said.job_id)
    return command


def _holders(said: Statement, content: Any, asked: dict[str, Any]) -> c.JobCommand:
    has_content = content is not payloads.UNSET
    match said.type:
        case E.HEARTBEAT:
            return c.Heartbeat(beat=_beat(said, content if has_content else {}), **asked)
        case E.SUCCEEDED:
            result = admit.json_value("content", content if has_content else None, limits.PAYLOAD_BYTES_MAX)
            return c.Complete(payload=payloads.result_payload(result), **asked)
        case E.STALLED:
            error = admit.error_value(content) if has_content else None
            return c.Stall(reason=admit.stall_reason(said.reason), error=error, **asked)
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


def _beat(said: Statement, content: Any) -> payloads.Beat:
    if said.shape == "seed":
        if content:
            raise ValidationError("a beat in the seed's shape says everything itself", field="content")
        return admit.beat(said.stage, said.progress, said.assist_requested)
    if not isinstance(content, Mapping) or not content.keys() <= {"stage", "progress", "assist_requested"}:
        raise ValidationError("a beat tells stage, progress, assist_requested", field="content")
    return admit.beat(content.get("stage"), content.get("progress"), content.get("assist_requested"))
