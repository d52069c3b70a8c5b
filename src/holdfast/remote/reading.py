"""The verbs of a remote ledger that only read."""

import builtins
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, TypeVar, cast

import msgspec

from holdfast.core import limits, vocabulary
from holdfast.core import policy as policies
from holdfast.core.audit import Violation
from holdfast.core.doctor import Diagnosis, Severity
from holdfast.core.doctor.checks import check_clock
from holdfast.core.explain import Explanation
from holdfast.core.liveness import LivenessHeartbeatReceiptV1
from holdfast.core.model import FailureStage, Fence, Policy, ReasonCode
from holdfast.core.policy import SourcedField
from holdfast.core.vocabulary import Dialect
from holdfast.errors import Unavailable, ValidationError
from holdfast.ledger import (
    DeclarationRecord,
    Event,
    Inclusion,
    Job,
    JobPage,
    KeyRecord,
    QueueRecord,
    SinkState,
    TreeHead,
    WorkerRecord,
    dialects,
    validate,
)
from holdfast.ledger.base import JobOrFence, LedgerBase, public_job
from holdfast.ledger.export import Progress, Write
from holdfast.ledger.verbs.access import TokenRecord
from holdfast.ledger.verbs.explaining import skew_of
from holdfast.ledger.verbs.history import HistoryWriter
from holdfast.ledger.verbs.operators import filter_fields
from holdfast.ledger.verbs.proofs import SealedLog
from holdfast.ledger.verbs.reading import Order, SearchedTime
from holdfast.ledger.verbs.services import Outbox, RunState, Supervision
from holdfast.proof.export_format import EndLine, ExportLine
from holdfast.remote import answers as a
from holdfast.remote import items
from holdfast.remote.paths import path
from holdfast.remote.pipeline import RemotePipeline
from holdfast.remote.store import EVENT_POLL_SECONDS, needs_store
from holdfast.remote.transport import Transport
from holdfast.store.callers import stop_if_abandoned
from holdfast.telemetry.metrics import Readings

T = TypeVar("T")


class RemoteReadVerbs(LedgerBase):
    _transport: Transport
    _remote: RemotePipeline
    _counted: tuple[float, dict[str, dict[str, int]]] | None

    def _get(self, target: str, answer: Any, /, **query: Any) -> Any:
        return self._transport.call("GET", target, answer, query=query)

    def _field(self, target: str, name: str, kind: type[T], /, **query: Any) -> T:
        """Return one field of an answer."""
        return cast(T, getattr(self._get(target, a.having(name, kind), **query), name))

    def now(self) -> datetime:
        return self._field("/v1/now", "now", datetime)

    def position(self) -> int:
        return self._field("/v1/position", "pos", int)

    # Jobs

    def get(self, job_id: int) -> Job:
        return _job(self._get(path("jobs", validate.job_id(job_id)), a.FoundAnswer).job)

    def list(
        self,
        *,
        status: str | Sequence[str] | None = None,
        phase: str | Sequence[str] | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        order: str = "oldest",
        waiting: bool = False,
        assist_requested: bool | None = None,
        time: str = "created",
        after: int = 0,
        cursor: str | None = None,
        limit: int = 100,
        **filters: Any,
    ) -> JobPage:
        statuses, _ = validate.statuses(status)
        phases = validate.phases(phase)
        query = _checked_filters(filters)
        query |= {
            "status": [status] if isinstance(status, str) else status,
            "phase": phases,
            "since": _time("since", since),
            "until": _time("until", until),
            "waiting": "true" if validate.switch("waiting", waiting) else None,
            "assist_requested": None
            if assist_requested is None
            else str(validate.switch("assist_requested", assist_requested)).lower(),
            "time": validate.choice("time", SearchedTime, time).value,
            "cursor": cursor,
            "order": validate.choice("order", Order, order).value,
            "after": limits.check_integer("after", after, 0, limits.JOB_ID_MAX),
            "limit": limits.check_integer("limit", limit, 1, limits.PAGE_MAX),
        }
        if () in (statuses, phases):
            return JobPage([], None)
        found = self._get("/v1/jobs", a.PageAnswer, **query)
        return JobPage(map(_job, found.jobs), found.next_after, found.next_cursor, found.searched, stopped=found.stopped)

    def dependents(self, job_id: int, *, after: int = 0, limit: int = 100) -> builtins.list[Job]:
        limits.check_integer("after", after, 0, limits.JOB_ID_MAX)
        limits.check_integer("limit", limit, 1, limits.PAGE_MAX)
        target = path("jobs", validate.job_id(job_id), "dependents")
        return [_job(job) for job in self._get(target, a.PageAnswer, after=after, limit=limit).jobs]

    def dead_letters(
        self,
        *,
        queue: str | None = None,
        kind: str | None = None,
        reason_code: ReasonCode | str | None = None,
        failure_stage: FailureStage | str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        discarded: bool = False,
        after: int = 0,
        limit: int = 100,
    ) -> builtins.list[Job]:
        query = filter_fields(queue, kind, reason_code, failure_stage, since, until, discarded, after, limit)
        query |= {"since": _time("since", since), "until": _time("until", until), "return": "jobs"}
        query["discarded"] = "true" if discarded else None
        return [_job(job) for job in self._get("/v1/dead-letters", a.PageAnswer, **query).jobs]

    def newest_replays(self, job_ids: Iterable[int]) -> dict[int, Job]:
        ids = [validate.job_id(job_id) for job_id in validate.items("job_ids", job_ids)]
        found = self._transport.call(
            "POST", "/v1/newest-replays", a.having("replays", dict[int, a.RemoteJob]), body={"job_ids": ids}, changes=False
        ).replays
        return {id_: _job(job) for id_, job in found.items()}

    def undo_steps(self, job_id: int) -> builtins.list[dict[str, Any]]:
        return self._field(path("jobs", validate.job_id(job_id), "undo-steps"), "steps", list[dict[str, Any]])

    def check(self, job_id: int) -> builtins.list[Violation]:
        return self._field(path("jobs", validate.job_id(job_id), "check"), "violations", list[Violation])

    def explain(self, job_id: int, *, to_claim: bool = False) -> Explanation:
        query = {"to_claim": "true" if to_claim else None}
        return cast(Explanation, self._get(path("jobs", validate.job_id(job_id), "explain"), Explanation, **query))

    def gate(self, job: JobOrFence) -> LivenessHeartbeatReceiptV1:
        if isinstance(job, Fence):
            fence = validate.fence(job)
            found = self._remote.check_gate(fence)
        else:
            found = self._get(path("jobs", validate.job_id(job), "gate"), a.having("receipt", msgspec.Raw))
        return LivenessHeartbeatReceiptV1.from_json(bytes(found.receipt))

    # Events

    def events(
        self,
        job_id: int | None = None,
        *,
        types: Sequence[str] | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        correlation_id: str | None = None,
        after: int = 0,
        limit: int = limits.PAGE_MAX,
    ) -> builtins.list[Event]:
        kinds = None if types is None else ",".join(kind.value for kind in vocabulary.event_types(types))
        target = "/v1/events" if job_id is None else path("jobs", validate.job_id(job_id), "events")
        query = {
            "types": kinds,
            "since": _time("since", since),
            "until": _time("until", until),
            "correlation_id": None if correlation_id is None else limits.check_key("correlation_id", correlation_id),
            "after": limits.check_integer("after", after, 0, limits.JOB_ID_MAX),
            "limit": limits.check_integer("limit", limit, 1, limits.PAGE_MAX),
        }
        return [] if kinds == "" else self._field(target, "events", list[Event], **query)

    def in_dialect(self, events: Sequence[Event], dialect: str) -> builtins.list[dict[str, Any]]:
        given, wanted = validate.items("events", events), dialects.read_dialect(dialect)
        if not all(isinstance(event, Event) for event in given):
            raise ValidationError("events takes a list of Event", field="events")
        find_state = dialects.find_states(self._phase_events, given, wanted)
        return [dialects.translate(event, wanted, self.id, find_state(event)) for event in given]

    def _phase_events(self, job_id: int) -> Iterator[Event]:
        after = 0
        while page := self.events(job_id, types=dialects.STATE_TYPES, after=after):
            yield from page
            after = page[-1].pos

    def stable_events(self, after: int, *, limit: int = 1_000) -> builtins.list[Event]:
        limits.check_integer("after", after, 0, limits.JOB_ID_MAX)
        limits.check_integer("limit", limit, 1, limits.PAGE_MAX)
        return self._field("/v1/events", "events", list[Event], after=after, limit=limit, stable="true")

    def stable_position(self) -> int:
        return self._field("/v1/position", "stable", int)

    def _follow(self, after: int, timeout: float | None) -> Generator[Event, None, None]:
        """Yield events by pages. The server answers only events before which no other can still be committed."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            found = self.stable_events(after)
            yield from found
            if found:
                after = found[-1].pos
                deadline = None if timeout is None else time.monotonic() + timeout
                continue
            left = EVENT_POLL_SECONDS if deadline is None else min(EVENT_POLL_SECONDS, deadline - time.monotonic())
            if left <= 0:
                return
            stop_if_abandoned()
            time.sleep(left)

    # Queues, workers and policies

    def counts(self, *, max_age: float = 0) -> dict[str, dict[str, int]]:
        age_ms = policies.duration_ms("max_age", max_age, 0, policies.DAY_MS)
        return self._field("/v1/counts", "counts", dict[str, dict[str, int]], max_age=age_ms / 1_000)

    def queues(self, *, totals: bool = False) -> builtins.list[QueueRecord]:
        query = {"totals": "true" if validate.switch("totals", totals) else None}
        return self._field("/v1/queues", "queues", list[QueueRecord], **query)

    def paused(self) -> dict[str, datetime]:
        return {queue.name: queue.paused_at for queue in self.queues() if queue.paused_at is not None}

    def workers(self, *, seen_within: Any = None, limit: int = limits.PAGE_MAX) -> builtins.list[WorkerRecord]:
        limits.check_integer("limit", limit, 1, limits.PAGE_MAX)
        within = None
        if seen_within is not None:
            within = items.milliseconds(policies.duration_ms("seen_within", seen_within, 0, validate.DELAY_MS_MAX))
        return self._field("/v1/workers", "workers", list[WorkerRecord], seen_within=within, limit=limit)

    def until_ready(self, queues: Sequence[str] = ("default",), *, kinds: Sequence[str] | None = None) -> float | None:
        wanted = None if kinds is None else validate.names("kinds", kinds)
        found = self._get(
            "/v1/until-ready", a.having("seconds", float | None), queues=validate.names("queues", queues), kinds=wanted
        )
        return cast(float | None, found.seconds)

    def ready_queues(self, queues: Sequence[str]) -> builtins.list[str]:
        return self._field("/v1/ready-queues", "queues", list[str], queues=validate.names("queues", queues))

    def wants_sweeping(self, holder: str) -> bool:
        limits.check_name("holder", holder)
        answer = a.having("wanted", bool)
        found = self._transport.call("POST", "/v1/duties/sweep/wanted", answer, body={"holder": holder}, changes=False)
        return cast(bool, found.wanted)

    def policies(self) -> dict[str, dict[str, dict[str, Any]]]:
        return self._field("/v1/policies", "policies", dict[str, dict[str, dict[str, Any]]])

    def declarations(self) -> dict[str, DeclarationRecord]:
        return self._field("/v1/policies", "declarations", dict[str, DeclarationRecord])

    def policy_sources(self, kind: str | None = None, *, tier: str | None = None) -> builtins.list[SourcedField]:
        query = {
            "kind": None if kind is None else limits.check_name("kind", kind),
            "tier": None if tier is None else limits.check_name("tier", tier),
        }
        return self._field("/v1/policy-sources", "fields", list[SourcedField], **query)

    def policy_of(self, job_id: int) -> Policy:
        return self._field(path("jobs", validate.job_id(job_id), "policy"), "policy", Policy)

    def sinks(self) -> builtins.list[SinkState]:
        return self._field("/v1/sinks", "sinks", list[SinkState])

    def runs(self, *, after: str = "", limit: int = 100) -> builtins.list[RunState]:
        limits.check_integer("limit", limit, 1, limits.PAGE_MAX)
        after = "" if after == "" else limits.check_name("after", after)
        return self._field("/v1/runs", "runs", list[RunState], after=after, limit=limit)

    def diagnose(self, *, clock: Callable[[], datetime] | None = None) -> Diagnosis:
        found = cast(Diagnosis, self._get("/v1/doctor", Diagnosis))
        if clock is None:
            return found
        finding = check_clock(skew_of(self._store, validate.function("clock", clock)))
        well = found.well and finding.severity is not Severity.WARNING
        return msgspec.structs.replace(found, well=well, findings=[*found.findings, finding])

    # Keys and seals

    def keys(self) -> builtins.list[KeyRecord]:
        return self._field("/v1/keys", "keys", list[KeyRecord])

    def head(self) -> TreeHead | None:
        return cast(TreeHead | None, self._get("/v1/head", a.having("head", TreeHead | None)).head)

    def heads(self, *, after: int = 0, limit: int = limits.PAGE_MAX) -> builtins.list[TreeHead]:
        limits.check_integer("after", after, 0, limits.JOB_ID_MAX)
        limits.check_integer("limit", limit, 1, limits.PAGE_MAX)
        return self._field("/v1/heads", "heads", list[TreeHead], after=after, limit=limit)

    def inclusion(self, job_id: int) -> Inclusion:
        return cast(Inclusion, self._get(path("jobs", validate.job_id(job_id), "inclusion"), Inclusion))

    def export(self, write: Write, *, dialect: str = Dialect.HOLDFAST, progress: Progress | None = None) -> EndLine:
        validate.function("write", write)
        return self._save("/v1/export", write, dialect=dialects.read_dialect(dialect).value)

    def prove(self, job_id: int, write: Write) -> EndLine:
        return self._save(path("jobs", validate.job_id(job_id), "proof"), validate.function("write", write))

    def _save(self, target: str, write: Write, **query: Any) -> EndLine:
        """Pass on the lines of a file. Its last line says how many there were."""
        line = b"{}"
        for line in self._transport.lines(target, query):
            write(line)
        end = msgspec.json.decode(line, type=ExportLine).end
        if isinstance(end, msgspec.UnsetType):
            raise Unavailable("the server ended the file before its last line")
        return end

    def tokens(self, *, after: str = "", limit: int = limits.PAGE_MAX) -> builtins.list[TokenRecord]:
        limits.check_integer("limit", limit, 1, limits.PAGE_MAX)
        return self._field("/v1/tokens", "tokens", list[TokenRecord], after=after, limit=limit)

    # What has to be near the database

    @property
    def outbox(self) -> Outbox:
        raise needs_store()

    @property
    def history_writer(self) -> HistoryWriter:
        raise needs_store()

    @property
    def sealed_log(self) -> SealedLog:
        raise needs_store()

    @property
    def supervision(self) -> Supervision:
        raise needs_store()

    def totals(self, *, max_age: float = 0) -> Readings:
        raise needs_store()


def _job(found: a.RemoteJob) -> Job:
    return public_job(a.record_of(found))


def _time(what: str, given: datetime | None) -> str | None:
    if given is None:
        return None
    validate.moment(what, given)
    return given.isoformat()


_FILTERS: dict[str, Callable[[str, Any], Any]] = {
    "queue": limits.check_name,
    "kind": limits.check_name,
    "owner": limits.check_name,
    "incarnation": limits.check_name,
    "correlation_id": limits.check_key,
    "text": limits.check_key,
    "replay_of": lambda _, given: validate.job_id(given),
}


def _checked_filters(given: dict[str, Any]) -> dict[str, Any]:
    """Return filters of a list of jobs. An unknown one is refused as an argument that the method does not have."""
    unknown = given.keys() - _FILTERS.keys()
    if unknown:
        raise TypeError(f"list() got an unexpected keyword argument {min(unknown)!r}")
    return {name: None if value is None else _FILTERS[name](name, value) for name, value in given.items()}
