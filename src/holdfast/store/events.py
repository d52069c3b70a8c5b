"""Reading of events."""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from holdfast.core.limits import JOB_ID_MAX
from holdfast.core.model import EventRecord, Micros
from holdfast.store.policies import SqlPolicies
from holdfast.store.rows import EVENT_TYPES, STATUSES, default_correlation, job_of_correlation

FREQUENT_TYPES = frozenset({"enqueued", "claimed", "started", "heartbeat", "succeeded"})


class EventFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Selects events by job, by type and time, or by correlation. Results follow the total order, after a position."""

    job_id: int | None = None
    types: tuple[str, ...] | None = None
    since: Micros | None = None
    until: Micros | None = None
    correlation_id: str | None = None
    after: int = 0
    rev_max: int | None = None
    limit: int = 1_000


class SqlEvents(SqlPolicies):
    """The part of a transaction that reads events."""

    def event(self, row: Sequence[Any]) -> EventRecord:
        (pos, job_id, rev, kind, received_at, at, actor, attempt, from_status, to_status, reason, request_id, cause, payload,
         policy_id, correlation_id, trace_id, key_id, signature, statement) = row  # fmt: skip
        return EventRecord(
            job_id,
            rev,
            EVENT_TYPES[kind],
            received_at,
            self.cache.actor(actor),
            attempt,
            None if from_status is None else STATUSES[from_status],
            STATUSES[to_status],
            reason,
            request_id,
            cause,
            payload,
            None if policy_id is None else self._policy(policy_id),
            at,
            pos,
            correlation_id or default_correlation(self.ledger_id, job_id),
            trace_id,
            1,
            key_id,
            signature,
            statement,
        )

    def find_event(self, job_id: int, request_id: str) -> EventRecord | None:
        found = self.one("find_event", jobs=self._list([job_id]), request_id=request_id)
        return None if found is None else self.event(found)

    def _jobs_of_correlation(self, correlation_id: str) -> list[int]:
        found = self.values("jobs_of_correlation", correlation_id=correlation_id)
        derived = job_of_correlation(self.ledger_id, correlation_id)
        if derived is not None:
            found += self.values("uncorrelated", id=derived)
        return found

    def pages(self, after: int, until: int, limit: int, **chosen: Any) -> Iterator[tuple[list[tuple[Any, ...]], int]]:
        """Yield rows of events after a position, in the total order, and the position up to which the page is complete.

        A page has `limit` events or more: it ends with a batch. It has fewer if events were deleted, or at the end.
        """
        while after < until:
            [(end, count)] = self.rows("page_end", after=after, until=until, limit=limit, **chosen)
            if end is None:
                return
            after, before = min(end, until) if count >= limit else until, after
            yield self.rows("events", after=before, until=after, **chosen), after

    def _events_by_time(self, limit: int, after: int, **chosen: Any) -> list[tuple[Any, ...]]:
        """Return rows of events of any type, in the total order."""
        found: list[tuple[Any, ...]] = []
        for rows, _ in self.pages(after, JOB_ID_MAX, limit, **chosen):
            found += rows
            if len(found) >= limit:
                break
        return found[:limit]

    def events(self, chosen: EventFilter) -> list[EventRecord]:
        common: dict[str, Any] = {
            "after": chosen.after,
            "types": None if chosen.types is None else self._list(chosen.types),
            "since_at": chosen.since,
            "until_at": chosen.until,
            "limit": chosen.limit,
        }
        if chosen.job_id is not None or chosen.correlation_id is not None:
            wanted = [chosen.job_id] if chosen.job_id is not None else self._jobs_of_correlation(chosen.correlation_id or "")
            rows = self.rows("events_of_jobs", jobs=self._list(wanted), rev_max=chosen.rev_max, **common)
        elif chosen.types is not None and not FREQUENT_TYPES.intersection(chosen.types):
            rows = self.rows("rare_events", **common)
        else:
            rows = self._events_by_time(**common)
        return [self.event(row) for row in rows]

    def has_event(self, job_id: int, cursor: int) -> bool:
        """Return whether the event at this position belongs to this job."""
        return bool(self.rows("has_event", jobs=self._list([job_id]), cursor=cursor))

    def newest_events(self, job_id: int, after: int, limit: int) -> list[EventRecord]:
        """Return the last `limit` events of a job after a position, oldest first."""
        return [
            self.event(row) for row in reversed(self.rows("newest_events", jobs=self._list([job_id]), after=after, limit=limit))
        ]

    def count_events(self, job_id: int, after: int, rev_below: int, limit: int) -> int:
        """Count the events of a job after a position and below a revision. `limit` means that many or more."""
        return int(self.value("count_events", jobs=self._list([job_id]), after=after, rev_below=rev_below, limit=limit))
