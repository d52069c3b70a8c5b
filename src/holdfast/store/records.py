"""Events, read from their rows."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any

from holdfast.core.model import Event, Policy
from holdfast.store.base import EVENT_TYPES, STATUSES, EventFilter, default_correlation, job_of_correlation
from holdfast.store.memory import Memory

EVERYDAY = frozenset({"enqueued", "claimed", "started", "heartbeat", "succeeded"})


class Records(ABC):
    """The part of a transaction that reads the history."""

    ledger_id: str
    memory: Memory

    @abstractmethod
    def rows(self, name: str, /, **params: Any) -> list[tuple[Any, ...]]: ...

    @abstractmethod
    def _list(self, values: Iterable[Any]) -> Any: ...

    @abstractmethod
    def _policy(self, policy_id: int) -> Policy: ...

    def event(self, row: Sequence[Any]) -> Event:
        (pos, job_id, rev, kind, received_at, at, actor, attempt, from_status, to_status, reason, request_id, cause, payload,
         policy_id, correlation_id, trace_id, key_id, signature, statement) = row  # fmt: skip
        return Event(
            job_id,
            rev,
            EVENT_TYPES[kind],
            received_at,
            self.memory.actor(actor),
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

    def find_event(self, job_id: int, request_id: str) -> Event | None:
        found = self.rows("find_event", job_id=job_id, request_id=request_id)
        return self.event(found[0]) if found else None

    def _correlated(self, correlation_id: str) -> list[int]:
        found = [row[0] for row in self.rows("jobs_of_correlation", correlation_id=correlation_id)]
        derived = job_of_correlation(self.ledger_id, correlation_id)
        if derived is not None:
            found += [row[0] for row in self.rows("uncorrelated", id=derived)]
        return found

    def _events_by_time(self, chosen: dict[str, Any]) -> list[tuple[Any, ...]]:
        """Rows of events of any type, in the total order."""
        return self.rows("events", **chosen)

    def events(self, chosen: EventFilter) -> list[Event]:
        common: dict[str, Any] = {
            "after": chosen.after,
            "types": None if chosen.types is None else self._list(chosen.types),
            "since_at": chosen.since,
            "until_at": chosen.until,
            "limit": chosen.limit,
        }
        if chosen.job_id is not None or chosen.correlation_id is not None:
            wanted = [chosen.job_id] if chosen.job_id is not None else self._correlated(chosen.correlation_id or "")
            rows = self.rows("events_of_jobs", jobs=self._list(wanted), rev_max=chosen.rev_max, **common)
        elif chosen.types is not None and not EVERYDAY.intersection(chosen.types):
            rows = self.rows("rare_events", **common)
        else:
            rows = self._events_by_time(common)
        return [self.event(row) for row in rows]
