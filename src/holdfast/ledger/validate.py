"""Check what callers pass in, and build commands from it. Nothing is changed before the whole call is valid."""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from datetime import datetime
from enum import StrEnum
from functools import partial
from typing import Any, TypeVar

import msgspec

from holdfast.core import commands as c
from holdfast.core import limits, payloads, strict_json, vocabulary
from holdfast.core import policy as policies
from holdfast.core.dependencies import ON_FAILURE
from holdfast.core.model import (
    ON_FAILURE_DEFAULT,
    OWN_LABEL,
    RESERVED_PREFIX,
    Actor,
    Draw,
    Fence,
    Flow,
    Micros,
    Phase,
    Role,
    StallReason,
    Status,
    required_labels,
)
from holdfast.core.text import safe_str, truncate_bytes
from holdfast.errors import HoldfastError, LimitExceeded, ValidationError
from holdfast.ledger.dedupe_options import dedupe_options
from holdfast.ledger.dependencies import Refs
from holdfast.ledger.options import check_options
from holdfast.ledger.public import EnqueueOptions, Job, to_micros

E = TypeVar("E", bound=StrEnum)

_encode = msgspec.json.Encoder(enc_hook=str).encode
_PAIR = 2
_BEAT_FIELDS = {"stage", "progress", "assist_requested"}
_PLAIN = 3
_BLANKS = b" \t\r\n"
_RAW_TYPES = (msgspec.Raw, strict_json.CheckedJson)
_MESSAGE_BYTES_MAX = limits.ERROR_BYTES_MAX // 8
"""An escape may take six bytes for one."""
DELAY_MS_MAX = limits.DELAY_US_MAX // 1_000


def body_hash(*fields: Any) -> bytes:
    """Return a hash of a request's body. Two requests with the same id must have the same body."""
    return hashlib.blake2b(_encode(fields), digest_size=16).digest()


def actor(given: "str | Actor | None", role: Role, fallback: str) -> Actor:
    if isinstance(given, Actor):
        limits.check_name("actor", given.name)
        if not isinstance(given.role, Role):
            raise ValidationError("an actor's role is a holdfast.Role", field="actor")
        if given.role is Role.WORKER:
            return worker(given.name, given.incarnation)
        if given.incarnation:
            raise ValidationError("only a worker has an incarnation", field="actor")
        return given
    return Actor(role, fallback if given is None else limits.check_name("actor", given))


def worker(name: Any, incarnation: Any) -> Actor:
    if "#" in limits.check_name("incarnation", incarnation):
        raise ValidationError("an incarnation must not contain #, which separates it from the name", field="incarnation")
    return Actor(Role.WORKER, limits.check_name("worker", name), incarnation)


def request_id(given: Any) -> str | None:
    return None if given is None else limits.check_key("request_id", given)


def timeout(given: Any) -> float | None:
    """Return how many seconds to wait, None for no limit."""
    return None if given is None else policies.duration_ms("timeout", given, 0, policies.DAY_MS) / 1_000


def job_id(given: Any) -> int:
    return limits.check_integer("job_id", given, 1, limits.JOB_ID_MAX)


def job_id_of(given: Any) -> int:
    """Return the id of a job that is given as an object or by its id."""
    return job_id(given.id if isinstance(given, Job) else given)


def page(after: Any, limit: Any) -> dict[str, Any]:
    """Return the place and the length of a page of a list by ids or positions."""
    return {
        "after": limits.check_integer("after", after, 0, limits.JOB_ID_MAX),
        "limit": limits.check_integer("limit", limit, 1, limits.PAGE_MAX),
    }


def page_by_name(after: Any, limit: Any) -> None:
    """Check the place and the length of a page of a list by names. The first page is after ""."""
    limits.check_integer("limit", limit, 1, limits.PAGE_MAX)
    if after != "":
        limits.check_name("after", after)


def rev(given: Any) -> int | None:
    return None if given is None else limits.check_integer("expected_rev", given, 1, limits.REV_MAX)


def attempt(given: Any) -> int | None:
    return None if given is None else limits.check_integer("attempt", given, 0, limits.REV_MAX)


def fence(given: Any) -> Fence:
    if not isinstance(given, Fence):
        raise ValidationError(f"fence must be a Fence, not {type(given).__name__}", field="fence")
    if not (
        type(given.job_id) is int
        and type(given.attempt) is int
        and type(given.token) is str
        and type(given.worker) is str
        and type(given.incarnation) is str
        and 0 < given.job_id <= limits.JOB_ID_MAX
        and 0 <= given.attempt <= limits.REV_MAX
        and len(given.worker) <= limits.NAME_BYTES_MAX
        and len(given.incarnation) <= limits.NAME_BYTES_MAX
        and limits.is_printable(given.token + given.worker + given.incarnation)
    ):
        raise ValidationError("this fence was not issued by a ledger", field="fence")
    return given


def function(what: str, given: Any) -> Any:
    if not callable(given):
        raise ValidationError(f"{what} must be a function, not {type(given).__name__}", field=what)
    return given


def switch(what: str, given: Any) -> bool:
    if not isinstance(given, bool):
        raise ValidationError(f"{what} must be true or false", field=what)
    return given


def items(what: str, given: Any) -> list[Any]:
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
        raise ValidationError(f"{what} takes a list", field=what)
    return list(given)


def pairs(what: str, given: Any) -> list[tuple[Fence, Any]]:
    """Check a list of (fence, value) pairs."""
    found = items(what, given)
    for pair in found:
        if not isinstance(pair, tuple | list) or len(pair) != _PAIR:
            raise ValidationError(f"{what} takes (fence, result) pairs", field=what)
        fence(pair[0])
    return found


def moment(what: str, given: Any) -> Micros:
    if not isinstance(given, datetime) or given.utcoffset() is None:
        raise ValidationError(f"{what} must be a datetime with a time zone", field=what)
    return limits.check_integer(what, to_micros(given), 0, limits.TIME_US_MAX)


def json_value(what: str, given: Any, bytes_max: int) -> bytes:
    """Return strict JSON bytes of a Python value, or of `Raw` bytes, which are kept as they are except for outer whitespace."""
    if given is None:
        return b"null"
    if type(given) is strict_json.CheckedJson:
        return strict_json.check_part(what, given, bytes_max)
    if isinstance(given, msgspec.Raw):
        return strict_json.check(what, bytes(given).strip(_BLANKS), bytes_max)
    return strict_json.encode(what, given, bytes_max)


def error_value(given: Any) -> bytes:
    """Return an error as a JSON object. Exceptions and texts are shortened: a long message must not keep a job from failing."""
    match given:
        case BaseException():
            given = {"type": type(given).__name__, "message": truncate_bytes(safe_str(given), _MESSAGE_BYTES_MAX)}
        case str():
            given = {"message": truncate_bytes(given, _MESSAGE_BYTES_MAX)}
    if not isinstance(given, dict | msgspec.Raw):
        raise ValidationError("error must be an exception, a text or an object", field="error")
    body = json_value("error", given, limits.ERROR_BYTES_MAX)
    if body[:1] != b"{":
        raise ValidationError("error must be a JSON object", field="error")
    return body


def choice(what: str, kind: type[E], given: Any, read: Callable[[Any], E] | None = None) -> E:
    """Return the member of `kind` with this name. `read` reads other names, too."""
    try:
        return (read or kind)(given)
    except (ValueError, TypeError, RecursionError):
        names = ", ".join(member.value for member in kind)
        raise ValidationError(f"{what} must be one of {names}", field=what) from None


def stall_reason(given: Any) -> StallReason | None:
    if given is None:
        return None
    return choice("reason", StallReason, given, vocabulary.stall_reason)


def reason(given: Any) -> str:
    return limits.check_text("reason", given, limits.REASON_BYTES_MAX)


def reason_if_any(given: Any) -> str | None:
    return None if given is None else reason(given)


def names(what: str, given: Any) -> tuple[str, ...]:
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise ValidationError(f"{what} must be a list of names", field=what)
    found = tuple(dict.fromkeys(limits.check_name(what, name) for name in given))
    limits.check_count(what, len(found), limits.NAMES_PER_CLAIM_MAX)
    if not found:
        raise ValidationError(f"{what} must name at least one", field=what)
    return found


def statuses(given: Any) -> tuple[tuple[str, ...] | None, tuple[str, ...] | None]:
    """Return the statuses for any of their names, and the phases to which running jobs are restricted.

    Some names mean a running job in one phase, such as ASSISTED. If `running` itself is named too, there is no restriction.
    """
    if given is None:
        return None, None
    try:
        names = [given] if isinstance(given, str) else list(given)
        found = {name: vocabulary.status(name) for name in names}
    except (ValueError, TypeError, RecursionError):
        raise ValidationError(f"status must be one of {', '.join(Status)}", field="status") from None
    of_running = [vocabulary.PHASE_ALIASES.get(name) for name, status in found.items() if status is Status.RUNNING]
    named = tuple(phase.value for phase in of_running if phase is not None)
    narrowed = named if named and len(named) == len(of_running) else None
    return tuple(dict.fromkeys(status.value for status in found.values())), narrowed


def phases(given: Any) -> tuple[str, ...] | None:
    if given is None:
        return None
    try:
        names = [given] if isinstance(given, str) else list(given)
        return tuple(dict.fromkeys(vocabulary.phase(name).value for name in names))
    except (ValueError, TypeError, RecursionError):
        raise ValidationError(f"phase must be one of {', '.join(Phase)}", field="phase") from None


def beat(
    stage: Any, progress: Any, assist_requested: Any, checkpoint: Any = payloads.UNSET, undo: Any = None
) -> payloads.BeatPayload:
    plain = stage is None and progress is None and assist_requested is None
    if plain and checkpoint is payloads.UNSET and undo is None:
        return payloads.NO_BEAT
    if assist_requested is not None and not isinstance(assist_requested, bool):
        raise ValidationError("assist_requested must be true or false", field="assist_requested")
    return payloads.BeatPayload(
        stage=None if stage is None else limits.check_name("stage", stage),
        progress=None if progress is None else limits.check_integer("progress", progress, 0, limits.INTEGER_MAX),
        assist_requested=assist_requested,
        checkpoint=_checkpoint(checkpoint),
        undo=payloads.UNSET if undo is None else undo_step(undo),
    )


def fence_and_beat(given: Any) -> tuple[Fence, payloads.BeatPayload]:
    """Return a fence and the fields of its heartbeat."""
    if not isinstance(given, tuple | list):
        return fence(given), payloads.NO_BEAT
    if len(given) != _PAIR or not isinstance(given[1], Mapping) or not given[1].keys() <= _BEAT_FIELDS:
        raise ValidationError(f"the fields of a heartbeat are {', '.join(sorted(_BEAT_FIELDS))}", field="heartbeat_many")
    fields = given[1]
    return fence(given[0]), beat(fields.get("stage"), fields.get("progress"), fields.get("assist_requested"))


def _checkpoint(given: Any) -> payloads.OptionalJson:
    if isinstance(given, msgspec.UnsetType):
        return given
    return msgspec.Raw(json_value("checkpoint", given, limits.CHECKPOINT_BYTES_MAX))


def undo_step(given: Any) -> payloads.UndoStep:
    if not isinstance(given, Mapping) or "kind" not in given or not given.keys() <= {"kind", "args"}:
        raise ValidationError("undo must be an object with a kind and args", field="undo")
    args = given.get("args", {})
    if not isinstance(args, dict | msgspec.Raw):
        raise ValidationError("undo args must be an object: a dict, or Raw JSON", field="undo")
    body = json_value("undo", args, limits.UNDO_BYTES_MAX)
    if body[:1] != b"{":
        raise ValidationError("undo args must be a JSON object", field="undo")
    return payloads.UndoStep(kind=limits.check_name("undo", given["kind"]), args=msgspec.Raw(body))


def unreserved_name(what: str, given: str) -> str:
    """Return `given`. Raise ValidationError if it starts with the prefix that is reserved for the ledger."""
    if given.startswith(RESERVED_PREFIX):
        raise ValidationError(f"{what}s that start with {RESERVED_PREFIX} are reserved for the ledger", field=what)
    return given


class EnqueueReader:
    """Builds enqueue commands. Names seen before are not checked again, and the common payload is concatenated from bytes."""

    _KNOWN_MAX = 10_000

    def __init__(self) -> None:
        self._heads: dict[tuple[str, str], bytes] = {}

    def _head(self, kind: Any, queue: Any) -> bytes:
        """Check the names, and return the start of a payload up to its args."""
        key = (unreserved_name("kind", limits.check_name("kind", kind)), limits.check_name("queue", queue))
        if len(self._heads) >= self._KNOWN_MAX:
            self._heads.clear()
        head = b'{"queue":' + _encode(key[1]) + b',"kind":' + _encode(key[0]) + b',"args":'
        self._heads[key] = head
        return head

    def commands(self, who: Actor, request: str | None, items: Sequence[Any]) -> list[c.Enqueue]:
        made: list[c.Enqueue] = []
        refs: list[Refs] = []
        try:
            for item in items:
                made.append(self._plain(who, request, item) or self._any(who, request, item, len(made), refs))
        except HoldfastError as error:
            if len(items) > 1:
                error.context["item"] = len(made)
            raise
        return refs[0].link(made) if refs else made

    def _any(self, who: Actor, request: str | None, item: Any, place: int, refs: list[Refs]) -> c.Enqueue:
        """Build the command of any item. The first item with a ref or a dependency adds the one entry of `refs`."""
        if not isinstance(item, Mapping) or "kind" not in item or not all(isinstance(name, str) for name in item):
            raise ValidationError("each item is an object with at least a kind", field="items")
        if "ref" in item or item.get("depends_on") is not None:
            refs[:] = refs or [Refs()]
            item = refs[0].take(place, item)
        return self.command(who, request, **item)

    def _plain(self, who: Actor, request: str | None, item: Any) -> c.Enqueue | None:
        """Build the command of a common item: args for a kind and queue seen before, and nothing else. None for other items."""
        try:
            kind, args, queue = item["kind"], item["args"], item["queue"]
            head = self._heads[kind, queue]
        except (KeyError, TypeError):
            return None
        if len(item) != _PLAIN:
            return None
        if type(args) is dict:
            body = strict_json.encode("args", args, limits.PAYLOAD_BYTES_MAX)
        elif type(args) in _RAW_TYPES:
            body = _args_json(args)
        else:
            return None
        return c.Enqueue(actor=who, request_id=request, queue=queue, kind=kind, payload=head + body + b"}", bare=True)

    def command(
        self, who: Actor, request: str | None, /, kind: Any, args: Any = None, queue: Any = "default", **options: Any
    ) -> c.Enqueue:
        try:
            head = self._heads.get((kind, queue)) or self._head(kind, queue)
        except TypeError:
            head = self._head(kind, queue)
        if args is None:
            body = b"{}"
        else:
            if not isinstance(args, dict | msgspec.Raw | strict_json.CheckedJson):
                raise ValidationError("args must be an object: a dict, or Raw JSON", field="args")
            body = _args_json(args)
        if not options:
            return c.Enqueue(actor=who, request_id=request, queue=queue, kind=kind, payload=head + body + b"}", bare=True)
        return self._full(who, request, kind, queue, body, options)

    def _full(self, who: Actor, request: str | None, kind: str, queue: str, args: bytes, options: dict[str, Any]) -> c.Enqueue:
        chosen = _options(options)
        override = chosen.pop("override")
        correlation_id, trace_id = chosen.pop("correlation_id"), chosen.pop("trace_id")
        body = payloads.EnqueuedPayload(
            queue=queue,
            kind=kind,
            args=msgspec.Raw(args),
            policy=payloads.to_optional_json(override),
            **chosen,
        )
        del chosen["on_dependency_failure"]
        depends_on = chosen.pop("depends_on")
        return (partial(c.EnqueueLinked, depends_on=depends_on) if depends_on else c.Enqueue)(
            actor=who,
            request_id=request,
            queue=queue,
            kind=kind,
            payload=body.encode(),
            override=override,
            correlation_id=correlation_id,
            trace_id=trace_id,
            **chosen,
        )


def _args_json(args: Any) -> bytes:
    body = json_value("args", args, limits.PAYLOAD_BYTES_MAX)
    if body[:1] != b"{":
        raise ValidationError("args must be a JSON object", field="args")
    return body


def _options(given: Mapping[str, Any]) -> dict[str, Any]:
    check_options("enqueue", given, EnqueueOptions.__optional_keys__)
    given = {name: value for name, value in given.items() if value is not None}
    if "delay" in given and "available_at" in given:
        raise ValidationError("give delay or available_at, not both", field="delay")
    own = given.get("policy", {})
    if not isinstance(own, Mapping):
        raise ValidationError("policy must be a mapping of its fields", field="policy")
    layer = policies.read_settings(dict(own))
    if layer.lease_widened:
        raise LimitExceeded("lease_widened is set for a kind or a tier, not by a job", field="policy")

    def key(name: str) -> str | None:
        return None if name not in given else limits.check_key(name, given[name])

    dedupe_key = key("dedupe_key")
    delay_us = policies.duration_ms("delay", given.get("delay", 0), 0, DELAY_MS_MAX) * 1_000
    depends_on = _dependencies(given.get("depends_on", ()))
    return {
        "priority": limits.check_integer("priority", given.get("priority", 0), -limits.PRIORITY_MAX, limits.PRIORITY_MAX),
        "available_at": None if "available_at" not in given else moment("available_at", given["available_at"]),
        "delay_us": delay_us,
        "dedupe_key": None if dedupe_key is None else unreserved_name("dedupe_key", dedupe_key),
        **dedupe_options(given, delay_us),
        "tier": None if "tier" not in given else limits.check_name("tier", given["tier"]),
        "correlation_id": key("correlation_id"),
        "trace_id": key("trace_id"),
        "override": None if layer == policies.NO_SETTINGS else _encode(layer),
        "depends_on": depends_on,
        "on_dependency_failure": _on_failure(given.get("on_dependency_failure", ON_FAILURE_DEFAULT)),
        "flow": _flow(given),
        "group": None if "group" not in given else limits.check_name("group", given["group"]),
    }


def _flow(given: Mapping[str, Any]) -> Flow | None:
    """Return the options of flow control, None if there are none."""
    worker = "" if "for_worker" not in given else limits.check_name("for_worker", given["for_worker"])
    requires = labels("requires", given.get("requires", ()), limits.LABELS_REQUIRED_MAX)
    flow = Flow(
        partition="" if "partition" not in given else limits.check_name("partition", given["partition"]),
        limits=draws(given.get("limits", ())),
        requires=required_labels(worker, requires),
    )
    return None if flow == _NO_FLOW else flow


_NO_FLOW = Flow()


def draws(given: Any) -> tuple[Draw, ...]:
    """Return the limits of a job: a mapping of names to units, or a list of names, each with one unit."""
    if isinstance(given, str) or not isinstance(given, Mapping | Sequence):
        raise ValidationError("limits must be a mapping of names to units, or a list of names", field="limits")
    units = given if isinstance(given, Mapping) else {limits.check_name("limits", name): 1 for name in given}
    if len(units) < len(given):
        raise ValidationError("limits has a name twice: a mapping of names to units draws more than one", field="limits")
    limits.check_count("limits", len(units), limits.LIMITS_PER_JOB_MAX)
    return tuple(
        Draw(limits.check_name("limits", name), _units(name, number))
        for name, number in sorted(units.items(), key=lambda pair: str(pair[0]))
    )


def _units(limit: str, given: Any) -> int:
    return limits.check_integer(f"the units of limit {limit}", given, 1, limits.LIMIT_UNITS_MAX, "limits")


def labels(what: str, given: Any, most: int) -> tuple[str, ...]:
    """Return labels, sorted and each once. The own label of a worker is refused: no other worker may have it."""
    if given == ():
        return ()
    if not isinstance(given, list | tuple | Set):
        raise ValidationError(f"{what} must be a list of labels", field=what)
    found = {limits.check_name(what, label) for label in given}
    refuse_own_labels(what, found)
    limits.check_count(what, len(found), most)
    return tuple(sorted(found))


def refuse_own_labels(what: str, given: Iterable[object]) -> None:
    """Raise ValidationError if one of these labels is the own label of a worker."""
    if any(isinstance(label, str) and label.startswith(OWN_LABEL) for label in given):
        raise ValidationError(
            f"{what}: each worker has the label {OWN_LABEL}NAME by itself, and no other label may start with {OWN_LABEL}",
            field=what,
            action="Name the only worker of a job with for_worker.",
        )


def availability(available_at: Any, delay: Any) -> tuple[Micros | None, int]:
    """Return a time, or a delay in microseconds."""
    if available_at is not None and delay is not None:
        raise ValidationError("give delay or available_at, not both", field="delay")
    at = None if available_at is None else moment("available_at", available_at)
    return at, policies.duration_ms("delay", 0 if delay is None else delay, 0, DELAY_MS_MAX) * 1_000


def _dependencies(given: Any) -> tuple[int, ...]:
    found = {job_id_of(one) for one in items("depends_on", given)}
    limits.check_count("depends_on", len(found), limits.DEPENDENCIES_MAX)
    return tuple(sorted(found))


def _on_failure(given: Any) -> str:
    if given not in ON_FAILURE:
        raise ValidationError(f"on_dependency_failure must be one of {', '.join(ON_FAILURE)}", field="on_dependency_failure")
    return str(given)
