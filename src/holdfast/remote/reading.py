"""The verbs of a remote ledger that only read."""

import builtins
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from holdfast.core import limits, vocabulary
from holdfast.core import policy as policies
from holdfast.core.audit import Violation
from holdfast.core.explain import Explanation
from holdfast.core.liveness import LivenessHeartbeatReceiptV1
from holdfast.core.model import FailureStage, Fence, ReasonCode
from holdfast.errors import ValidationError
from holdfast.ledger import (
    Event,
    Job,
    JobPage,
    dialects,
    validate,
)
from holdfast.ledger.base import JobOrFence, public_job
from holdfast.ledger.public import R
from holdfast.ledger.verbs.operators import filter_fields
from holdfast.ledger.verbs.reading import Order, SearchedTime
from holdfast.remote import answers as a
from holdfast.remote.base import RemoteVerbs, time_text
from holdfast.remote.items import path
from holdfast.remote.waiting import EventFollower, wait_for_end

T = TypeVar("T")


class RemoteReadVerbs(RemoteVerbs):
    def now(self) -> datetime:
        return self._field("/v1/now", "now", datetime)

    def position(self) -> int:
        return self._field("/v1/position", "pos", int)

    # Jobs

    def get(self, job_id: int) -> Job:
        return _job(self._read_job(validate.job_id(job_id)))

    def _read_job(self, job_id: int) -> a.RemoteJob:
        return self._get(path("jobs", job_id), a.FoundAnswer).job

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
            "since": time_text("since", since),
            "until": time_text("until", until),
            "waiting": "true" if validate.switch("waiting", waiting) else None,
            "assist_requested": None
            if assist_requested is None
            else str(validate.switch("assist_requested", assist_requested)).lower(),
            "time": validate.choice("time", SearchedTime, time).value,
            "cursor": cursor,
            "order": validate.choice("order", Order, order).value,
            **validate.page(after, limit),
        }
        if () in (statuses, phases):
            return JobPage([], None)
        found = self._get("/v1/jobs", a.PageAnswer, **query)
        return JobPage(map(_job, found.jobs), found.next_after, found.next_cursor, found.searched, stopped=found.stopped)

    def dependents(self, job_id: int, *, after: int = 0, limit: int = 100) -> builtins.list[Job]:
        validate.page(after, limit)
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
        query |= {"since": time_text("since", since), "until": time_text("until", until), "return": "jobs"}
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
        return self._get(path("jobs", validate.job_id(job_id), "explain"), Explanation, **query)

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
            "since": time_text("since", since),
            "until": time_text("until", until),
            "correlation_id": None if correlation_id is None else limits.check_key("correlation_id", correlation_id),
            **validate.page(after, limit),
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
        validate.page(after, limit)
        return self._stable_page(after, limit).events

    def _stable_page(self, after: int, limit: int = limits.PAGE_MAX) -> a.StableEvents:
        return self._get("/v1/events", a.StableEvents, after=after, limit=limit, stable="true")

    def stable_position(self) -> int:
        return self._field("/v1/position", "stable", int)

    def _follow(self, after: int, timeout: float | None) -> Generator[Event, None, None]:
        return EventFollower(self._transport, self._stable_page, after, timeout).events()

    def wait(self, job: Job[R] | int, *, timeout: float | None = None) -> Job[R]:
        job_id = validate.job_id_of(job)
        seconds = None if timeout is None else policies.duration_ms("timeout", timeout, 0, policies.DAY_MS) / 1_000
        return _job(wait_for_end(self._transport, lambda: self._read_job(job_id), job_id, seconds))


def _job(found: a.RemoteJob) -> Job:
    return public_job(a.record_of(found))


_FILTERS: dict[str, Callable[[str, Any], Any]] = {
    "queue": limits.check_name,
    "kind": limits.check_name,
    "owner": limits.check_name,
    "incarnation": limits.check_name,
    "correlation_id": limits.check_key,
    "dedupe_key": limits.check_key,
    "text": limits.check_key,
    "replay_of": lambda _, given: validate.job_id(given),
}


def _checked_filters(given: dict[str, Any]) -> dict[str, Any]:
    """Return filters of a list of jobs. An unknown one is refused as an argument that the method does not have."""
    unknown = given.keys() - _FILTERS.keys()
    if unknown:
        raise TypeError(f"list() got an unexpected keyword argument {min(unknown)!r}")
    return {name: None if value is None else _FILTERS[name](name, value) for name, value in given.items()}
