"""One transaction over named statements: the part that both stores share. Only the hot verbs differ."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from holdfast.core import limits, payloads
from holdfast.core.commands import ClaimNext
from holdfast.core.limits import JOB_ID_MAX, OPEN_CASCADE_BATCH_MAX
from holdfast.core.model import HELD, UNDO_KIND, EventRecord, EventType, JobRecord, Micros, Policy, Status
from holdfast.core.undo import undo_key
from holdfast.store.agents import AgentSession
from holdfast.store.base import (
    DeadLetterFilter,
    DueJobs,
    EventFilter,
    JobFilter,
    JobRows,
    PauseRow,
    StoredRequest,
    UnfinishedJobs,
)
from holdfast.store.dependencies import DependencySession
from holdfast.store.diagnostics import DiagnosticSession
from holdfast.store.fleet import FleetSession, RunSession
from holdfast.store.outbox import OutboxSession
from holdfast.store.policies import PolicySession, RowCache
from holdfast.store.retention import RetentionSession
from holdfast.store.rows import (
    EVENT_TYPES,
    STATUSES,
    ClaimedJobs,
    build_job,
    checkpoint_rev,
    default_correlation,
    job_of_correlation,
    row_checkpoint_rev,
    row_id,
    row_policy_id,
    saved_values,
)
from holdfast.store.sealing import KeyLogSession, SealSession

FREQUENT_TYPES = frozenset({"enqueued", "claimed", "started", "heartbeat", "succeeded"})
ACTIVE = HELD | {Status.STALLED}
"""The statuses of jobs that the sweeper looks at."""


def _is_checked(event: EventRecord) -> bool:
    """Return whether something may be due for the job earlier than before this event."""
    is_extension = event.type in (EventType.CLAIMED, EventType.STARTED, EventType.HEARTBEAT) and event.policy is None
    return not is_extension or event.to_status is Status.STALLED


class EventSession(ABC):
    """The part of a transaction that reads events."""

    ledger_id: str
    cache: RowCache

    @abstractmethod
    def rows(self, name: str, /, **params: Any) -> list[tuple[Any, ...]]: ...

    @abstractmethod
    def _list(self, values: Iterable[Any]) -> Any: ...

    @abstractmethod
    def _policy(self, policy_id: int) -> Policy: ...

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
        found = self.rows("find_event", jobs=self._list([job_id]), request_id=request_id)
        return self.event(found[0]) if found else None

    def _jobs_of_correlation(self, correlation_id: str) -> list[int]:
        found = [row[0] for row in self.rows("jobs_of_correlation", correlation_id=correlation_id)]
        derived = job_of_correlation(self.ledger_id, correlation_id)
        if derived is not None:
            found += [row[0] for row in self.rows("uncorrelated", id=derived)]
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


class SqlSession(
    PolicySession,
    EventSession,
    FleetSession,
    OutboxSession,
    KeyLogSession,
    SealSession,
    RunSession,
    DiagnosticSession,
    DependencySession,
    AgentSession,
    RetentionSession,
):
    """One transaction over named statements."""

    def __init__(self, ledger_id: str, cache: RowCache) -> None:
        self.ledger_id = ledger_id
        self.cache = cache
        self.new_profiles: dict[tuple[str, str, str], int] = {}
        self.policies: dict[int, Policy] = {}
        """Like `new_profiles`: not in the cache until this transaction is committed."""
        self._policy_ids: dict[Policy, int] = {}
        self.careful = False
        self.wakes: set[str] | None = None
        """Queues whose waiters are woken after the commit. None: wake no waiters, not even event followers."""

    def wake(self, queues: Iterable[str]) -> None:
        self.wakes = set(queues).union(self.wakes or ())

    @abstractmethod
    def now(self) -> Micros:
        """Return the ledger's current time."""

    # Jobs

    def _jobs(self, rows: Iterable[Sequence[Any]]) -> dict[int, JobRecord]:
        return {row[0]: build_job(row, self._policy, self.ledger_id) for row in rows}

    def load(self, ids: Sequence[int], *, lock: bool) -> dict[int, JobRecord]:
        wanted = self._list(sorted(set(ids)))
        if lock:
            self._lock_jobs(wanted)
        return self._jobs(self.rows("load", ids=wanted))

    def lock(self, ids: Iterable[int]) -> None:
        self._lock_jobs(self._list(sorted(ids)))

    @abstractmethod
    def try_lock(self, ids: Iterable[int]) -> set[int]: ...

    @abstractmethod
    def pin(self, ids: Iterable[int]) -> set[int]: ...

    @abstractmethod
    def take_requests(self, keys: Sequence[tuple[str, str]]) -> set[tuple[str, str]]: ...

    @abstractmethod
    def _lock_jobs(self, ids: Any) -> None:
        """Lock these rows until the transaction ends, in a separate statement: later reads see the state after the wait."""

    def claimed(self, rows: Sequence[tuple[Any, ...]], command: ClaimNext, epoch_us: Micros = 0) -> ClaimedJobs:
        """Return the jobs of the rows of a claim, with times since `epoch_us`. Only checkpoints need a second statement."""
        with_checkpoint = [row_id(row) for row in rows if row_checkpoint_rev(row) is not None]
        found = self.rows("checkpoints", ids=self._list(with_checkpoint)) if with_checkpoint else []
        checkpoints = {id_: payloads.checkpoint_of(body) for id_, body in found}
        policies = {policy_id: self._policy(policy_id) for policy_id in set(map(row_policy_id, rows))}
        return ClaimedJobs(rows, command, policies, self.ledger_id, checkpoints, epoch_us)

    def key_holder(self, queue: str, key: str) -> int | None:
        found = self.one("key_holder", queue=queue, key=key)
        return None if found is None else int(found[0])

    def save(self, job: JobRecord, events: Sequence[EventRecord]) -> None:
        """Save a job that is locked, and its new events. They take the positions from a newly drawn one on."""
        claim_offset = next((offset for offset, event in enumerate(events) if event.type is EventType.CLAIMED), None)
        derived = {
            "policy_id": None if job.policy is None else self._policy_id(job.policy),
            "result": next((event.payload for event in events if event.type is EventType.SUCCEEDED), None),
            "checkpoint_rev": checkpoint_rev(events),
            "claim_offset": claim_offset,
        }
        [(pos, claim_pos)] = self._save_row(len(events), id=job.id, **derived, **saved_values(job))
        for offset, event in enumerate(events):
            values: dict[str, Any] = {
                "pos": pos + offset,
                "job_id": event.job_id,
                "rev": event.rev,
                "received_at": event.received_at,
                "actor": str(event.actor),
                "attempt": event.attempt,
                "from_status": None if event.from_status is None else event.from_status.value,
                "to_status": event.to_status.value,
                "reason": event.reason,
                "request_id": event.request_id,
                "cause": event.cause,
                "policy_id": None if event.policy is None else self._policy_id(event.policy),
            }
            if offset == claim_offset:
                claim_pos = pos + offset
                self._insert_claim(values)
                continue
            values |= {"at": event.at, "key_id": event.key_id, "signature": event.signature, "statement": event.statement}
            self.rows("insert_event", type=event.type.value, payload=event.payload, claim_pos=claim_pos, **values)
        if claim_pos is not None and any(map(_is_checked, events)):
            if job.status in ACTIVE:
                self.rows("check_claim", pos=claim_pos)
            else:
                self.rows("close_claim", pos=claim_pos, ended=1)

    @abstractmethod
    def _save_row(self, events: int, **values: Any) -> list[tuple[int, int | None]]:
        """Save the job's row and draw positions for its events. Return the first, and the position of the claim before."""

    @abstractmethod
    def _insert_claim(self, values: dict[str, Any]) -> None:
        """Record a `claimed` event of one job."""

    def live_replay(self, job_id: int) -> int | None:
        found = self.one("live_replay", job_id=job_id)
        return None if found is None else int(found[0])

    def dead_letters(self, chosen: DeadLetterFilter) -> list[int]:
        rows = self.rows(
            "dead_letters",
            queue=chosen.queue,
            kind=chosen.kind,
            reason_code=chosen.reason_code,
            failure_stage=chosen.failure_stage,
            since_at=chosen.since,
            until_at=chosen.until,
            discarded=chosen.discarded,
            after=chosen.after,
            limit=chosen.limit,
        )
        return [row[0] for row in rows]

    # Undoing

    def unfinished_jobs(self, limit: int, linked: int) -> UnfinishedJobs:
        """Return unfinished jobs. Of the jobs to link, only ids above `linked` are returned."""
        rows = self.rows("owing", undo_kind=UNDO_KIND, limit=limit, untold_max=OPEN_CASCADE_BATCH_MAX, linked=linked)
        return UnfinishedJobs(*([id_ for id_, task in rows if task == wanted] for wanted in ("undo", "tell", "link")))

    def undo_steps(self, job_id: int) -> list[payloads.UndoStep]:
        """Return the undo steps of a job in the order of their registration."""
        found = [payloads.undo_step(row[0]) for row in self.rows("undo_beats", job_id=job_id)]
        return [step for step in found if step is not None]

    def undo_job(self, job: JobRecord) -> JobRecord | None:
        """Return the job that undoes this one."""
        found = self.one("undo_job", queue=job.queue, key=undo_key(job.id))
        return None if found is None else self.load([found[0]], lock=False)[found[0]]

    def jobs(self, chosen: JobFilter) -> list[JobRecord]:
        """Return a page of jobs by id."""
        return self.search(chosen).jobs

    def search(self, chosen: JobFilter) -> JobRows:
        """Return a page of jobs by id. The cursor is the last id of a page, so pages never shift.

        A search by time or text stops after SEARCHED_MAX or SEARCHED_TEXT_MAX jobs. `next_after` is then the last job examined.
        """
        timed = chosen.since is not None or chosen.until is not None
        if not timed and chosen.text is None:
            ids = self._job_ids(chosen)
            next_after = ids[-1] if len(ids) == chosen.limit else None
        else:
            ids, next_after = self._matching(chosen)
        found = self.load(ids, lock=False)
        return JobRows([found[id_] for id_ in ids], next_after)

    def _matching(self, chosen: JobFilter) -> tuple[list[int], int | None]:
        """Return the ids that match a search by time and text, and the last id examined, or None if no jobs are left."""
        found: list[int] = []
        left = limits.SEARCHED_MAX if chosen.text is None else limits.SEARCHED_TEXT_MAX
        after = chosen.after
        while left > 0:
            size = min(left, limits.PAGE_MAX)
            ids = self._job_ids(msgspec.structs.replace(chosen, after=after, limit=size))
            conditions = {"since_at": chosen.since, "until_at": chosen.until, "text": chosen.text}
            matches = {row[0] for row in self.rows("matching", ids=self._list(ids), **conditions)}
            found += [id_ for id_ in ids if id_ in matches]
            if len(found) >= chosen.limit:
                return found[: chosen.limit], found[chosen.limit - 1]
            if len(ids) < size:
                return found, None
            after, left = ids[-1], left - size
        return found, after

    def _job_ids(self, chosen: JobFilter) -> list[int]:
        if chosen.phases is not None:
            phased = tuple(status for status in ("running", "stalled") if chosen.statuses is None or status in chosen.statuses)
            if not phased or chosen.waiting:
                return []
            chosen = msgspec.structs.replace(chosen, statuses=phased)
        if chosen.owner is not None:
            held = tuple(status for status in ("claimed", "running") if chosen.statuses is None or status in chosen.statuses)
            if not held or chosen.waiting:
                return []
            chosen = msgspec.structs.replace(chosen, statuses=held)
        statuses = None if chosen.statuses is None else self._list(chosen.statuses)
        job_filter = {
            "owner": chosen.owner,
            "incarnation": chosen.incarnation,
            "phases": None if chosen.phases is None else self._list(chosen.phases),
            "running_phases": None if chosen.running_phases is None else self._list(chosen.running_phases),
        }
        common: dict[str, Any] = {
            "after": (chosen.after or limits.JOB_ID_MAX) if chosen.newest else chosen.after,
            "queue": chosen.queue,
            "kind": chosen.kind,
            "limit": chosen.limit,
        }
        order = "_newest" if chosen.newest else ""
        plain = chosen.correlation_id is None and chosen.replay_of is None and not chosen.waiting
        if plain and chosen.statuses and set(chosen.statuses) <= {"claimed", "running", "stalled"}:
            rows = self.rows(f"list_active{order}", statuses=statuses, **job_filter, **common)
        elif (
            plain
            and chosen.statuses
            and len(chosen.statuses) == 1
            and chosen.statuses[0] in ("failed", "cancelled", "dead_lettered")
        ):
            rows = self.rows(f"list_ended{order}", status=chosen.statuses[0], **common)
        else:
            jobs = None if chosen.correlation_id is None else self._list(self._jobs_of_correlation(chosen.correlation_id))
            name, more = ("list_waiting", {}) if chosen.waiting else ("list_jobs", job_filter)
            rows = self.rows(f"{name}{order}", statuses=statuses, jobs=jobs, replay_of=chosen.replay_of, **more, **common)
        return [row[0] for row in rows]

    def job_ids(self, after: int, limit: int) -> list[int]:
        """Return the next job ids, without decoding any other column."""
        names = ("statuses", "jobs", "replay_of", "queue", "kind", "owner", "incarnation", "phases", "running_phases")
        return [row[0] for row in self.rows("list_jobs", after=after, limit=limit, **dict.fromkeys(names))]

    def counts(self) -> list[tuple[str, str, int]]:
        return [(queue, status, count) for queue, status, count in self.rows("counts")]

    def due(self, after: int, limit: int) -> DueJobs:
        rows = self.rows("due", now_at=self.stamp(), after=after, limit=limit)
        return DueJobs(rows[0][0], rows[0][2] or 0, [row[1] for row in rows if row[1] is not None], bool(rows[0][3]))

    def tidy_claims(self, limit: int) -> None:
        """Close claims of which no job is held any more. Schedule the next check of the others."""
        self.rows("tidy_claims", now_at=self.stamp(), limit=limit)

    # Queues

    def paused(self, queue: str) -> bool:
        found = self.one("paused", queue=queue)
        return found is not None and found[0] is not None

    def pause(self, queue: str, by: str, reason: str | None) -> None:
        self.rows("set_paused", queue=queue, paused_at=self.now(), paused_by=by, pause_reason=reason)

    def unpause(self, queue: str) -> None:
        self.rows("set_paused", queue=queue, paused_at=None, paused_by=None, pause_reason=None)

    def pauses(self) -> list[PauseRow]:
        return [PauseRow(*row) for row in self.rows("pauses")]

    # Requests

    def find_requests(self, keys: Sequence[tuple[str, str]]) -> dict[tuple[str, str], StoredRequest]:
        found = [StoredRequest(*row) for row in self.rows("find_requests", **self._keys(keys))]
        return {(row.actor, row.request_id): row for row in found}

    @abstractmethod
    def _keys(self, keys: Sequence[tuple[str, str]]) -> dict[str, Any]: ...

    def keep_requests(self, rows: Sequence[StoredRequest]) -> None:
        for row in rows:
            self.rows("keep_request", now_at=self.stamp(), **row._asdict())
