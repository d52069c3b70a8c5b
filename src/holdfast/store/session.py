"""What both stores do alike: everything but the hot verbs. The SQL has the same names and parameters on both sides."""

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from holdfast.core import limits, payloads
from holdfast.core.commands import ClaimNext
from holdfast.core.limits import UNTOLD_BATCH_MAX
from holdfast.core.model import UNDO_KIND, Event, Job, Micros, Policy
from holdfast.core.undo import undo_key
from holdfast.store.agents import AgentSession
from holdfast.store.base import (
    JobFilter,
    JobRows,
    Kept,
    LeftOver,
    LetterFilter,
    Pause,
    build_job,
    checkpoint_rev,
    claimed_jobs,
    result_rev,
    saved_values,
)
from holdfast.store.fleet import FleetSession
from holdfast.store.keys import KeyLog
from holdfast.store.memory import Memory
from holdfast.store.places import Places
from holdfast.store.policies import Policies
from holdfast.store.records import Records
from holdfast.store.retention import Retention
from holdfast.store.runs import RunRows
from holdfast.store.seals import Seals
from holdfast.store.standing import Standing
from holdfast.store.waiting import Waiting


class SqlSession(Policies, Records, FleetSession, Places, KeyLog, Seals, RunRows, Standing, Waiting, AgentSession, Retention):
    """One transaction over named statements."""

    def __init__(self, ledger_id: str, memory: Memory) -> None:
        self.ledger_id = ledger_id
        self.memory = memory
        self.learned: dict[tuple[str, str, str], int] = {}
        self.policies: dict[int, Policy] = {}
        """What this session alone knows as yet."""
        self._policy_ids: dict[Policy, int] = {}
        self.careful = False
        self.wakes: set[str] | None = None
        """Queues to be rung once this is committed; None where nobody has anything to hear of."""

    def wake(self, queues: Iterable[str]) -> None:
        self.wakes = set(queues).union(self.wakes or ())

    @abstractmethod
    def now(self) -> Micros:
        """The ledger's time, read now."""

    # Jobs

    def _jobs(self, rows: Iterable[Sequence[Any]]) -> dict[int, Job]:
        return {row[0]: build_job(row, self._policy, self.ledger_id) for row in rows}

    def load(self, ids: Sequence[int], *, lock: bool) -> dict[int, Job]:
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
        """Lock these rows until the transaction ends. A statement of its own: what is read next is as of after the wait."""

    def claimed(self, rows: Sequence[Sequence[Any]], command: ClaimNext, epoch_us: Micros = 0) -> list[Job]:
        """Jobs from what the claim statement returned, in times since `epoch_us`. Only those with a checkpoint cost a second
        statement."""
        marked = [row[0] for row in rows if row[20] is not None]
        found = self.rows("checkpoints", ids=self._list(marked)) if marked else []
        kept = {id_: payloads.checkpoint_of(body) for id_, body in found}
        return claimed_jobs(rows, command, self._policy, self.ledger_id, kept, epoch_us)

    def key_holder(self, queue: str, key: str) -> int | None:
        found = self.one("key_holder", queue=queue, key=key)
        return None if found is None else int(found[0])

    def save(self, job: Job, events: Sequence[Event]) -> None:
        derived = {
            "policy_id": None if job.policy is None else self._policy_id(job.policy),
            "result_rev": result_rev(events),
            "checkpoint_rev": checkpoint_rev(events),
        }
        self.rows("save", id=job.id, **derived, **saved_values(job))
        for event in events:
            self.rows(
                "insert_event",
                job_id=event.job_id,
                rev=event.rev,
                type=event.type.value,
                received_at=event.received_at,
                at=event.at,
                actor=str(event.actor),
                attempt=event.attempt,
                from_status=None if event.from_status is None else event.from_status.value,
                to_status=event.to_status.value,
                reason=event.reason,
                request_id=event.request_id,
                cause=event.cause,
                payload=event.payload,
                policy_id=None if event.policy is None else self._policy_id(event.policy),
                key_id=event.key_id,
                signature=event.signature,
                statement=event.statement,
            )

    def live_replay(self, job_id: int) -> int | None:
        found = self.one("live_replay", job_id=job_id)
        return None if found is None else int(found[0])

    def dead_letters(self, chosen: LetterFilter) -> list[int]:
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

    def left_over(self, limit: int, linked: int) -> LeftOver:
        """Jobs that are to be linked are those after `linked`, by id."""
        rows = self.rows("owing", undo_kind=UNDO_KIND, limit=limit, untold_max=UNTOLD_BATCH_MAX, linked=linked)
        return LeftOver(*([id_ for id_, what in rows if what == wanted] for wanted in ("undo", "tell", "link")))

    def undo_steps(self, job_id: int) -> list[payloads.UndoStep]:
        """In the order they were registered."""
        found = [payloads.undo_step(row[0]) for row in self.rows("undo_beats", job_id=job_id)]
        return [step for step in found if step is not None]

    def undo_job(self, job: Job) -> Job | None:
        """The job that undoes this one."""
        found = self.one("undo_job", queue=job.queue, key=undo_key(job.id))
        return None if found is None else self.load([found[0]], lock=False)[found[0]]

    def jobs(self, chosen: JobFilter) -> list[Job]:
        """A page of jobs by id."""
        return self.search(chosen).jobs

    def search(self, chosen: JobFilter) -> JobRows:
        """A page of jobs by id. A cursor is the last id seen, so pages never shift.

        A search by time or text stops after SEARCHED_MAX or SEARCHED_TEXT_MAX jobs; the page then says where it stopped.
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
        """Ids that fit a search by time and text, and the last one that was looked at; None if it was the last one of all."""
        found: list[int] = []
        left = limits.SEARCHED_MAX if chosen.text is None else limits.SEARCHED_TEXT_MAX
        after = chosen.after
        while left > 0:
            size = min(left, limits.PAGE_MAX)
            ids = self._job_ids(msgspec.structs.replace(chosen, after=after, limit=size))
            asked = {"since_at": chosen.since, "until_at": chosen.until, "text": chosen.text}
            fit = {row[0] for row in self.rows("matching", ids=self._list(ids), **asked)}
            found += [id_ for id_ in ids if id_ in fit]
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
        narrowed = {
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
            rows = self.rows(f"list_active{order}", statuses=statuses, **narrowed, **common)
        elif (
            plain
            and chosen.statuses
            and len(chosen.statuses) == 1
            and chosen.statuses[0] in ("failed", "cancelled", "dead_lettered")
        ):
            rows = self.rows(f"list_ended{order}", status=chosen.statuses[0], **common)
        else:
            jobs = None if chosen.correlation_id is None else self._list(self._correlated(chosen.correlation_id))
            name, more = ("list_waiting", {}) if chosen.waiting else ("list_jobs", narrowed)
            rows = self.rows(f"{name}{order}", statuses=statuses, jobs=jobs, replay_of=chosen.replay_of, **more, **common)
        return [row[0] for row in rows]

    def job_ids(self, after: int, limit: int) -> list[int]:
        """The next jobs by id, whatever is in their rows."""
        names = ("statuses", "jobs", "replay_of", "queue", "kind", "owner", "incarnation", "phases", "running_phases")
        return [row[0] for row in self.rows("list_jobs", after=after, limit=limit, **dict.fromkeys(names))]

    def counts(self) -> list[tuple[str, str, int]]:
        return [(queue, status, count) for queue, status, count in self.rows("counts")]

    def due(self, after: int, limit: int) -> tuple[Micros, Micros, list[int]]:
        """The ledger's time, the last fresh interval's start, and jobs for which a sweep may have something to do.

        `decide` has the last word.
        """
        rows = self.rows("due", now_at=self.stamp(), after=after, limit=limit)
        return rows[0][0], rows[0][2] or 0, [row[1] for row in rows if row[1] is not None]

    # Queues

    def paused(self, queue: str) -> bool:
        found = self.one("paused", queue=queue)
        return found is not None and found[0] is not None

    def pause(self, queue: str, by: str, reason: str | None) -> None:
        self.rows("set_paused", queue=queue, paused_at=self.now(), paused_by=by, pause_reason=reason)

    def unpause(self, queue: str) -> None:
        self.rows("set_paused", queue=queue, paused_at=None, paused_by=None, pause_reason=None)

    def pauses(self) -> list[Pause]:
        return [Pause(*row) for row in self.rows("pauses")]

    # Requests

    def find_requests(self, keys: Sequence[tuple[str, str]]) -> dict[tuple[str, str], Kept]:
        found = [Kept(*row) for row in self.rows("find_requests", **self._keys(keys))]
        return {(row.actor, row.request_id): row for row in found}

    @abstractmethod
    def _keys(self, keys: Sequence[tuple[str, str]]) -> dict[str, Any]: ...

    def keep_requests(self, rows: Sequence[Kept]) -> None:
        for row in rows:
            self.rows("keep_request", now_at=self.stamp(), **row._asdict())
