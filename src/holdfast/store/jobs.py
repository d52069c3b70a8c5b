"""Jobs: loading, locking and saving, lists, and what a sweep looks for."""

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from holdfast.core import limits, payloads
from holdfast.core.flow import LimitKey
from holdfast.core.limits import OPEN_CASCADE_BATCH_MAX
from holdfast.core.model import ACTIVE, UNDO_KIND, EventRecord, EventType, JobRecord, Micros, Status
from holdfast.core.undo import undo_key
from holdfast.errors import NotFound
from holdfast.store.dependencies import EVENT_COLUMNS, event_row
from holdfast.store.events import SqlEvents
from holdfast.store.flow import SqlFlow
from holdfast.store.groups import SqlGroups, ends_job
from holdfast.store.rows import build_job, checkpoint_rev, chunks, saved_values
from holdfast.store.windows import SqlWindows


def _is_checked(event: EventRecord) -> bool:
    """Return whether something may be due for the job earlier than before this event."""
    is_extension = event.type in (EventType.CLAIMED, EventType.STARTED, EventType.HEARTBEAT) and event.policy is None
    return not is_extension or event.to_status is Status.STALLED


class UnfinishedJobs(NamedTuple):
    """Ids of jobs for which the sweeper has work left."""

    undo_pending: list[int]
    """Finished, with undo steps, and their undo job does not exist or has ended."""
    cascade_pending: list[int]
    """Finished, with dependents that the cascade has not reached yet."""
    link_pending: list[int]
    """Waiting, and not yet counted as dependents of the jobs they wait for."""


class DueJobs(NamedTuple):
    """Jobs for which a sweep may be due. `decide` makes the final decision."""

    now: Micros
    fresh_since: Micros
    """The start of the last fresh interval, or 0."""
    ids: list[int]
    has_checks: bool
    """Whether there are claims to tidy."""
    has_firings: bool
    """Whether a schedule is due."""
    has_group_changes: bool
    """Whether the counts of a group lack changes."""


class JobFilter(msgspec.Struct, frozen=True, kw_only=True):
    statuses: tuple[str, ...] | None = None
    running_phases: tuple[str, ...] | None = None
    """Limits running jobs to these phases. Jobs of other statuses are not affected."""
    phases: tuple[str, ...] | None = None
    """Only jobs in these phases. Only running and stalled jobs have a phase."""
    queue: str | None = None
    kind: str | None = None
    correlation_id: str | None = None
    dedupe_key: str | None = None
    """Only jobs that have this dedupe key. A finished job without a window has given it up."""
    replay_of: int | None = None
    owner: str | None = None
    """Only jobs that this worker holds, in any incarnation unless `incarnation` is given."""
    incarnation: str | None = None
    waiting: bool = False
    """Only jobs that wait for a dependency."""
    assist_requested: bool | None = None
    """Only held or stalled jobs whose holder requests assistance, or only jobs whose holder does not."""
    time: str = "created"
    since: Micros | None = None
    until: Micros | None = None
    """Bounds of the time of enqueueing, of the last change (`updated`) or of the end (`finished`)."""
    text: str | None = None
    newest: bool = False
    """Sort by descending id."""
    sort: str | None = None
    """Sort by `updated` or `finished`, latest first, or by `available`, earliest first."""
    after: int = 0
    """The last id of the page before; 0 for the first page."""
    place: tuple[Micros, int] | None = None
    """With `sort`: the time and the id of the last job of the page before."""
    limit: int = 100


class JobRows(NamedTuple):
    """A page of jobs. `next_after` is the cursor of the next page, None on the last page. With `sort` it is `next_place`."""

    jobs: list[JobRecord]
    next_after: int | None
    next_place: tuple[Micros, int] | None = None
    searched: int | None = None
    """How many jobs a search by time or text has examined, or how many were sorted."""
    stopped: bool = False
    """Whether there are jobs that were not examined."""


class DeadLetterFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Selects dead letters, by ascending id after a cursor. `since` and `until` bound the time at which the job ended."""

    queue: str | None = None
    kind: str | None = None
    reason_code: str | None = None
    failure_stage: str | None = None
    since: Micros | None = None
    until: Micros | None = None
    discarded: bool = False
    """Include dead letters that an operator has discarded."""
    after: int = 0
    limit: int = 100


_ACTIVE = ("claimed", "running", "stalled")
_SORTED_STATUSES: dict[str, tuple[str, ...]] = {
    "available": ("queued",),
    "finished": ("succeeded", "failed", "cancelled", "dead_lettered"),
}
"""The statuses of the jobs that have the time that they are sorted by."""


def _is_search(chosen: JobFilter) -> bool:
    """Return whether each job has to be looked at: there is no index for times and texts."""
    return chosen.since is not None or chosen.until is not None or chosen.text is not None


def _is_plain(chosen: JobFilter) -> bool:
    """Return whether an index by status has the jobs of a filter."""
    return chosen.correlation_id is None and chosen.dedupe_key is None and chosen.replay_of is None and not chosen.waiting


class _DueRow(NamedTuple):
    now: Micros
    id: int | None
    """None in the only row if no job is due."""
    fresh_since: Micros | None
    has_checks: bool
    has_firings: bool
    has_group_changes: bool


class SqlJobs(SqlEvents, SqlWindows, SqlFlow, SqlGroups):
    def _jobs(self, rows: Iterable[Sequence[Any]]) -> dict[int, JobRecord]:
        return {job.id: job for job in (build_job(row, self._policy, self.ledger_id) for row in rows)}

    def load(self, ids: Sequence[int], *, lock: bool) -> dict[int, JobRecord]:
        wanted = self._list(sorted(set(ids)))
        if lock:
            self._lock_jobs(wanted)
        return self._jobs(self.rows("load", ids=wanted))

    def load_one(self, job_id: int, *, lock: bool = False) -> JobRecord:
        """Return a job. Raise NotFound if there is none."""
        found = self.load([job_id], lock=lock).get(job_id)
        if found is None:
            raise NotFound(f"there is no job {job_id}", job_id=job_id)
        return found

    def lock(self, ids: Iterable[int]) -> None:
        self._lock_jobs(self._list(sorted(ids)))

    @abstractmethod
    def try_lock(self, ids: Iterable[int]) -> set[int]:
        """Lock these jobs without waiting. Return those that another transaction has locked."""

    @abstractmethod
    def pin(self, ids: Iterable[int]) -> set[int]:
        """Prevent that these jobs are deleted and, if that needs no waiting, that they end before this transaction does.

        Return those that may still end.
        """

    @abstractmethod
    def _lock_jobs(self, ids: Any) -> None:
        """Lock these rows until the transaction ends, in a separate statement: later reads see the state after the wait."""

    def save(self, job: JobRecord, events: Sequence[EventRecord], draws: Sequence[tuple[LimitKey, int]] = ()) -> None:
        """Save a job that is locked, and its new events. They take the positions from a newly drawn one on.

        `draws` are the keys of limits, and units of each, that an attempt draws on that begins.
        """
        claim_offset = next((offset for offset, event in enumerate(events) if event.type is EventType.CLAIMED), None)
        derived = {
            "policy_id": None if job.policy is None else self._policy_id(job.policy),
            "result": next((event.payload for event in events if event.type is EventType.SUCCEEDED), None),
            "checkpoint_rev": checkpoint_rev(events),
            "claim_offset": claim_offset,
            "subqueue": self.subqueue_of(job) if job.status is Status.QUEUED else None,
        }
        [(pos, claim_pos, subqueue)] = self._save_row(len(events), id=job.id, **derived, **saved_values(job))
        if claim_offset is not None and draws:
            self.draw_one(job.id, pos + claim_offset, draws)
        if subqueue is not None:
            self._note_saved(job, events, subqueue)
        self._save_call(job, events)
        for offset, event in enumerate(events):
            values = dict(zip(EVENT_COLUMNS, event_row(event), strict=True))
            values |= {"pos": pos + offset, "policy_id": None if event.policy is None else self._policy_id(event.policy)}
            if offset == claim_offset:
                claim_pos = pos + offset
                self._insert_claim(values)
                continue
            values |= {"at": event.at, "key_id": event.key_id, "signature": event.signature, "statement": event.statement}
            self.rows("insert_event", claim_pos=claim_pos, **values)
        if claim_pos is not None and any(map(_is_checked, events)):
            if job.status in ACTIVE:
                self.rows("check_claim", pos=claim_pos)
            else:
                self.rows("close_claim", pos=claim_pos, ended=1)
        if job.group is not None and ends_job(events):
            self.note_ended([job.id])

    def _note_saved(self, job: JobRecord, events: Sequence[EventRecord], subqueue: int) -> None:
        """Note what a saved job means for its subqueue."""
        is_freed = events[0].from_status in ACTIVE and job.status not in ACTIVE and subqueue > 0
        self.note_subqueues([subqueue] if job.status is Status.QUEUED else [], [subqueue] if is_freed else [])
        if is_freed:
            self.wake({job.queue})

    @abstractmethod
    def _save_row(self, events: int, **values: Any) -> list[tuple[int, int | None, int | None]]:
        """Save the job's row and draw positions for its events.

        Return the first position, the position of the claim before, and the subqueue of the job.
        """

    @abstractmethod
    def _insert_claim(self, values: dict[str, Any]) -> None:
        """Record a `claimed` event of one job."""

    def live_replay(self, job_id: int) -> int | None:
        found: int | None = self.value("live_replay", job_id=job_id)
        return found

    def dead_letters(self, chosen: DeadLetterFilter) -> list[int]:
        fields = msgspec.structs.asdict(chosen)
        return self.values("dead_letters", since_at=fields.pop("since"), until_at=fields.pop("until"), **fields)

    # Undoing

    def unfinished_jobs(self, limit: int, linked: int) -> UnfinishedJobs:
        """Return unfinished jobs. Of the jobs to link, only ids above `linked` are returned."""
        params = {"limit": limit, "batch_max": OPEN_CASCADE_BATCH_MAX, "linked": linked}
        rows = self.rows("unfinished_jobs", undo_kind=UNDO_KIND, **params)
        tasks = ("undo", "cascade", "link")
        return UnfinishedJobs(*([id_ for id_, task in rows if task == wanted] for wanted in tasks))

    def undo_steps(self, job_id: int) -> list[payloads.UndoStep]:
        """Return the undo steps of a job in the order of their registration."""
        found = map(payloads.undo_step, self.values("undo_beats", job_id=job_id))
        return [step for step in found if step is not None]

    def undo_job(self, job: JobRecord) -> JobRecord | None:
        """Return the job that undoes this one."""
        found = self.key_holder(job.queue, undo_key(job.id))
        return None if found is None else self.load([found], lock=False)[found]

    def jobs(self, chosen: JobFilter) -> list[JobRecord]:
        """Return a page of jobs by id."""
        return self.search(chosen).jobs

    def search(self, chosen: JobFilter) -> JobRows:
        """Return a page of jobs by id. The cursor is the last id of a page, so pages never shift.

        A search by time or text stops after SEARCHED_MAX or SEARCHED_TEXT_MAX jobs. `next_after` is then the last job examined.
        """
        if chosen.sort is not None:
            return self._sorted(chosen)
        if not _is_search(chosen):
            ids = self._job_ids(chosen)
            next_after = ids[-1] if len(ids) == chosen.limit else None
            return JobRows(self._load_in_order(ids), next_after)
        return self._matching(chosen)

    def _load_in_order(self, ids: Sequence[int]) -> list[JobRecord]:
        found = self.load(ids, lock=False)
        return [found[id_] for id_ in ids]

    def _matching(self, chosen: JobFilter) -> JobRows:
        """Return the jobs that match a search by time and text. `next_after` is the last id examined."""
        found: list[int] = []
        left = limits.SEARCHED_MAX if chosen.text is None else limits.SEARCHED_TEXT_MAX
        after, searched = chosen.after, 0
        while left > 0:
            size = min(left, limits.PAGE_MAX)
            ids = self._job_ids(msgspec.structs.replace(chosen, after=after, limit=size))
            found += self._matches(chosen, ids)
            if len(found) >= chosen.limit:
                last = found[chosen.limit - 1]
                searched += ids.index(last) + 1
                return JobRows(self._load_in_order(found[: chosen.limit]), last, None, searched)
            searched += len(ids)
            if len(ids) < size:
                return JobRows(self._load_in_order(found), None, None, searched)
            after, left = ids[-1], left - size
        return JobRows(self._load_in_order(found), after, None, searched, stopped=True)

    def _matches(self, chosen: JobFilter, ids: Sequence[int]) -> list[int]:
        """Return those of these ids that match a search by time and text, in their order."""
        conditions = {"time": chosen.time, "since_at": chosen.since, "until_at": chosen.until, "text": chosen.text}
        matches = set(self.values("matching", ids=self._list(ids), **conditions))
        return [id_ for id_ in ids if id_ in matches]

    def _sorted(self, chosen: JobFilter) -> JobRows:
        """Return a page of jobs by time. There is no index for that, so only the newest jobs are sorted."""
        ids, stopped = self._to_sort(chosen)
        searched = len(ids)
        if _is_search(chosen):
            ids = [id_ for part in chunks(ids, limits.PAGE_MAX) for id_ in self._matches(chosen, part)]
        at, id_ = chosen.place or (None, 0)
        params = {"ids": self._list(ids), "place_at": at, "place_id": id_, "limit": chosen.limit}
        rows = self.rows(f"sort_{chosen.sort}", **params)
        next_place = (rows[-1][1], rows[-1][0]) if len(rows) == chosen.limit else None
        return JobRows(self._load_in_order([id_ for id_, _ in rows]), None, next_place, searched, stopped)

    def _to_sort(self, chosen: JobFilter) -> tuple[list[int], bool]:
        """Return the jobs to sort, and whether there are more. Held and stalled jobs are always among them."""
        statuses = _SORTED_STATUSES.get(chosen.sort or "")
        if statuses is not None:
            given = statuses if chosen.statuses is None else chosen.statuses
            chosen = msgspec.structs.replace(chosen, statuses=tuple(status for status in given if status in statuses))
        plain = _is_plain(chosen)
        if chosen.sort == "available" and plain and chosen.statuses and chosen.owner is None and chosen.phases is None:
            found = self.values("list_queued", queue=chosen.queue, kind=chosen.kind, limit=limits.SEARCHED_MAX)
            return found, len(found) == limits.SEARCHED_MAX
        page = msgspec.structs.replace(chosen, newest=True, after=0, limit=limits.SORTED_MAX)
        ids = self._job_ids(page)
        stopped = len(ids) == limits.SORTED_MAX
        if stopped and plain:
            active = tuple(status for status in _ACTIVE if chosen.statuses is None or status in chosen.statuses)
            ids += self._job_ids(msgspec.structs.replace(page, statuses=active)) if active else []
        return list(dict.fromkeys(ids)), stopped

    def _job_ids(self, chosen: JobFilter) -> list[int]:
        if chosen.statuses == ():
            return []
        if chosen.assist_requested:
            held = tuple(status for status in _ACTIVE if chosen.statuses is None or status in chosen.statuses)
            if not held or chosen.waiting:
                return []
            chosen = msgspec.structs.replace(chosen, statuses=held)
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
            "assist_requested": chosen.assist_requested,
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
        plain = _is_plain(chosen)
        if plain and chosen.statuses and set(chosen.statuses) <= {"claimed", "running", "stalled"}:
            return self.values(f"list_active{order}", statuses=statuses, **job_filter, **common)
        if (
            plain
            and chosen.statuses
            and len(chosen.statuses) == 1
            and chosen.statuses[0] in ("failed", "cancelled", "dead_lettered")
        ):
            return self.values(f"list_ended{order}", status=chosen.statuses[0], **common)
        jobs = self._linked_ids(chosen)
        name, more = ("list_waiting", {}) if chosen.waiting else ("list_jobs", job_filter)
        return self.values(
            f"{name}{order}",
            statuses=statuses,
            jobs=None if jobs is None else self._list(jobs),
            replay_of=chosen.replay_of,
            **more,
            **common,
        )

    def _linked_ids(self, chosen: JobFilter) -> list[int] | None:
        """Return the jobs with the correlation id and the dedupe key of a filter. None if it has neither."""
        ids = None if chosen.correlation_id is None else self._jobs_of_correlation(chosen.correlation_id)
        if chosen.dedupe_key is not None:
            found = self.values("jobs_of_key", key=chosen.dedupe_key)
            ids = found if ids is None else sorted(set(ids).intersection(found))
        return ids

    def job_ids(self, after: int, limit: int) -> list[int]:
        """Return the next job ids."""
        return self._job_ids(JobFilter(after=after, limit=limit))

    def due(self, after: int, limit: int) -> DueJobs:
        rows = self.records(_DueRow, "due", now_at=self.stamp(), after=after, limit=limit)
        first, ids = rows[0], [row.id for row in rows if row.id is not None]
        flags = bool(first.has_checks), bool(first.has_firings), bool(first.has_group_changes)
        return DueJobs(first.now, first.fresh_since or 0, ids, *flags)

    def tidy_claims(self, limit: int) -> None:
        """Close claims of which no job is held any more. Schedule the next check of the others."""
        self.rows("tidy_claims", now_at=self.stamp(), limit=limit)
