"""What both stores do alike: everything but the hot verbs. The SQL has the same names and parameters on both sides."""

import hashlib
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import msgspec

from holdfast.core import payloads
from holdfast.core.commands import ClaimNext, Enqueue
from holdfast.core.limits import JOB_ID_MAX
from holdfast.core.model import UNDO_KIND, Actor, Event, Job, Micros, Policy
from holdfast.core.policy import NO_SETTINGS, Settings, resolve
from holdfast.core.undo import undo_key
from holdfast.store.agents import AgentSession
from holdfast.store.base import (
    EVENT_TYPES,
    STATUSES,
    EventFilter,
    JobFilter,
    Kept,
    LetterFilter,
    Pause,
    build_job,
    checkpoint_rev,
    claimed_jobs,
    default_correlation,
    job_of_correlation,
    result_rev,
    saved_values,
)
from holdfast.store.fleet import FleetSession
from holdfast.store.keys import KeyLog
from holdfast.store.places import Places
from holdfast.store.runs import RunRows
from holdfast.store.seals import Seals
from holdfast.store.standing import Standing
from holdfast.store.waiting import Waiting

EVERYDAY = frozenset({"enqueued", "claimed", "started", "heartbeat", "succeeded"})
_settings = msgspec.json.Decoder(Settings)
_policy = msgspec.json.Decoder(Policy)
_encode = msgspec.json.Encoder().encode


class Memory:
    """What a store remembers between transactions: rows that never change once they are committed."""

    ACTORS_MAX = 10_000

    def __init__(self) -> None:
        self.policies: dict[int, Policy] = {}
        self.profiles: dict[tuple[str, str, str], int] = {}
        self.actors: dict[str, Actor] = {}

    def keep(self, session: "SqlSession") -> None:
        """The session was committed: what it read, its own writes among it, is so."""
        if session.learned:
            self.profiles.update(session.learned)
        if session.policies:
            self.policies.update(session.policies)

    def actor(self, text: str) -> Actor:
        found = self.actors.get(text)
        if found is None:
            if len(self.actors) >= self.ACTORS_MAX:
                self.actors.clear()
            found = self.actors[text] = Actor.parse(text)
        return found


class SqlSession(FleetSession, Places, KeyLog, Seals, RunRows, Standing, Waiting, AgentSession):
    """One transaction over named statements."""

    def __init__(self, ledger_id: str, memory: Memory) -> None:
        self.ledger_id = ledger_id
        self.memory = memory
        self.learned: dict[tuple[str, str, str], int] = {}
        self.policies: dict[int, Policy] = {}
        """What this session alone knows as yet."""
        self._policy_ids: dict[Policy, int] = {}
        self.wakes: set[str] | None = None
        """Queues to be rung once this is committed; None where nobody has anything to hear of."""

    def wake(self, queues: Iterable[str]) -> None:
        self.wakes = set(queues).union(self.wakes or ())

    @abstractmethod
    def now(self) -> Micros:
        """The ledger's time, read now."""

    def one(self, name: str, /, **params: Any) -> tuple[Any, ...] | None:
        rows = self.rows(name, **params)
        return rows[0] if rows else None

    # Policies

    def _policy(self, policy_id: int) -> Policy:
        found = self.memory.policies.get(policy_id) or self.policies.get(policy_id)
        if found is None:
            self.policies = {id_: _policy.decode(body) for id_, body in self.rows("policies")}
            found = self.policies[policy_id]
        return found

    def _policy_id(self, policy: Policy) -> int:
        """Looked for once: the jobs of one transaction mostly share it."""
        known = self._policy_ids.get(policy)
        if known is not None:
            return known
        body = _encode(policy).decode()
        found = self.one("find_policy", body=body)
        if found is None:
            found = self.one("insert_policy", body=body, lease_us=policy.lease_ttl_ms * 1_000, token_tail=policy.token_tail)
        assert found is not None
        self._policy_ids[policy] = int(found[0])
        return int(found[0])

    def profile_id(self, item: Enqueue) -> int:
        """The row that stands for an item's kind, tier and own settings."""
        key = (item.kind, item.tier or "", "" if item.override is None else item.override.decode())
        known = self.memory.profiles.get(key) or self.learned.get(key)
        return known if known is not None else self.intern_profile(key)

    def intern_profile(self, key: tuple[str, str, str]) -> int:
        kind, tier, override = key
        self._lock_settings()
        found = self.one("find_profile", kind=kind, tier=tier, override=override)
        if found is None:
            policy_id = self._policy_id(self._resolve(kind, tier, override))
            found = self.one("insert_profile", kind=kind, tier=tier, override=override, policy_id=policy_id)
        assert found is not None
        self.learned[key] = int(found[0])
        return int(found[0])

    @abstractmethod
    def _lock_settings(self) -> None:
        """Hold off anybody else who sets or resolves policies until this transaction ends."""

    def _resolve(self, kind: str, tier: str, override: str) -> Policy:
        layers = self._layers(kind, tier)
        by_job = _settings.decode(override) if override else NO_SETTINGS
        return resolve(tier or None, layers.get("kind", NO_SETTINGS), layers.get("tier", NO_SETTINGS), by_job)

    def _layers(self, kind: str, tier: str) -> dict[str, Settings]:
        return {scope: _settings.decode(body) for scope, _, body in self.rows("settings", kind=kind, tier=tier)}

    def policy_of(self, job: Job) -> Policy:
        """The policy a lease on this job would have now."""
        key = (job.kind, job.tier or "", "" if job.override is None else job.override.decode())
        found = self.one("find_profile", kind=key[0], tier=key[1], override=key[2])
        assert found is not None
        return self._policy(found[1])

    def settings_of(self, scope: Literal["kind", "tier"], name: str) -> Settings:
        """One layer. Nobody else changes it until the transaction ends."""
        self._lock_settings()
        layers = self._layers(name, "") if scope == "kind" else self._layers("", name)
        return layers.get(scope, NO_SETTINGS)

    def set_settings(self, scope: Literal["kind", "tier"], name: str, settings: Settings) -> None:
        self._lock_settings()
        self.rows("upsert_settings", scope=scope, name=name, body=_encode(settings).decode())
        for id_, kind, tier, override in self.rows(f"profiles_of_{scope}", name=name):
            self.rows("update_profile", policy_id=self._policy_id(self._resolve(kind, tier, override)), id=id_)

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
    def _lock_jobs(self, ids: Any) -> None:
        """Lock these rows until the transaction ends. A statement of its own: what is read next is as of after the wait."""

    def claimed(self, rows: Sequence[Sequence[Any]], command: ClaimNext, epoch_us: Micros = 0) -> list[Job]:
        """Jobs from what the claim statement returned, in times since `epoch_us`. Only those with a checkpoint cost a second
        statement."""
        marked = [row[0] for row in rows if row[20] is not None]
        found = self.rows("checkpoints", ids=self._list(marked)) if marked else []
        kept = {id_: payloads.checkpoint_of(body) for id_, body in found}
        return claimed_jobs(rows, command, self._policy, self.ledger_id, kept, epoch_us)

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

    def owing(self, limit: int) -> list[int]:
        """Finished jobs that owe undo steps and whose undo job is not there, or over."""
        return [row[0] for row in self.rows("owing", undo_kind=UNDO_KIND, limit=limit)]

    def undo_steps(self, job_id: int) -> list[payloads.UndoStep]:
        """In the order they were registered."""
        found = [payloads.undo_step(row[0]) for row in self.rows("undo_beats", job_id=job_id)]
        return [step for step in found if step is not None]

    def undo_job(self, job: Job) -> Job | None:
        """The job that undoes this one."""
        found = self.one("undo_job", queue=job.queue, key=undo_key(job.id))
        return None if found is None else self.load([found[0]], lock=False)[found[0]]

    def jobs(self, chosen: JobFilter) -> list[Job]:
        """A page of jobs by id. A cursor is the last id seen, so pages never shift."""
        statuses = None if chosen.statuses is None else self._list(chosen.statuses)
        common: dict[str, Any] = {
            "after": chosen.after,
            "queue": chosen.queue,
            "kind": chosen.kind,
            "limit": chosen.limit,
        }
        plain = chosen.correlation_id is None and chosen.replay_of is None and not chosen.waiting
        if plain and chosen.statuses and set(chosen.statuses) <= {"claimed", "running", "stalled"}:
            rows = self.rows("list_active", statuses=statuses, **common)
        elif (
            plain
            and chosen.statuses
            and len(chosen.statuses) == 1
            and chosen.statuses[0] in ("failed", "cancelled", "dead_lettered")
        ):
            rows = self.rows("list_ended", status=chosen.statuses[0], **common)
        else:
            jobs = None if chosen.correlation_id is None else self._list(self._correlated(chosen.correlation_id))
            name = "list_waiting" if chosen.waiting else "list_jobs"
            rows = self.rows(name, statuses=statuses, jobs=jobs, replay_of=chosen.replay_of, **common)
        found = self.load([row[0] for row in rows], lock=False)
        return [found[row[0]] for row in rows]

    def job_ids(self, after: int, limit: int) -> list[int]:
        """The next jobs by id, whatever is in their rows."""
        everything = {"statuses": None, "jobs": None, "replay_of": None, "queue": None, "kind": None}
        return [row[0] for row in self.rows("list_jobs", after=after, limit=limit, **everything)]

    def counts(self) -> list[tuple[str, str, int]]:
        return [(queue, status, count) for queue, status, count in self.rows("counts")]

    def due(self, after: int, limit: int) -> tuple[Micros, list[int]]:
        """The ledger's time, and jobs for which a sweep may have something to do; `decide` has the last word."""
        rows = self.rows("due", now_at=self.stamp(), after=after, limit=limit)
        return rows[0][0], [id_ for _, id_ in rows if id_ is not None]

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

    # Events

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
        found = self.one("find_event", job_id=job_id, request_id=request_id)
        return None if found is None else self.event(found)

    def _correlated(self, correlation_id: str) -> list[int]:
        found = [row[0] for row in self.rows("jobs_of_correlation", correlation_id=correlation_id)]
        derived = job_of_correlation(self.ledger_id, correlation_id)
        if derived is not None:
            found += [row[0] for row in self.rows("uncorrelated", id=derived)]
        return found

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
            rows = self.rows("events", **common)
        return [self.event(row) for row in rows]

    # Retention

    def _place(self, name: str) -> int:
        found = self.one("cursor", name=name)
        return 0 if found is None else int(found[0])

    def _sealed(self) -> int:
        """Up to which position retention may take things away: all there are, where nobody seals them."""
        found = self.sealed_pos()
        return JOB_ID_MAX if found is None else found

    def prune_jobs(self, before: Micros, limit: int) -> int:
        """Delete finished jobs among the next `limit` by id, with their events; the walk starts over at the end.

        Where the log is sealed, what is not in the tree yet stays.
        """
        after = self._place("prune_jobs")
        sealed = self._sealed()
        rows = self.rows("walk_jobs", after=after, before_at=before, undo_kind=UNDO_KIND, sealed=sealed, limit=limit)
        gone = [id_ for id_, failed, is_old in rows if is_old and not failed]
        gone += self._unwanted([id_ for id_, failed, is_old in rows if is_old and failed])
        old = self._list(gone)
        self.rows("delete_dependencies", ids=old)
        self.rows("delete_events", ids=old)
        self.rows("delete_jobs", ids=old)
        self.rows("set_cursor", name="prune_jobs", pos=rows[-1][0] if len(rows) == limit else 0)
        return len(gone)

    def prune_beats(self, before: Micros, limit: int) -> int:
        """Replace payloads of old beats by their hash. The last beat of a job stays, and so do its last checkpoint and its
        undo steps."""
        after = self._place("prune_beats")
        rows = self.rows("walk_beats", after=after, before_at=before, sealed=self._sealed(), limit=limit)
        old = [(pos, body) for pos, body in rows if body is not None and _may_go(body)]
        for pos, body in old:
            digest = payloads.Beat(pruned=hashlib.sha256(body).hexdigest())
            self.rows("strip_beat", pos=pos, payload=digest.encode())
        self.rows("set_cursor", name="prune_beats", pos=rows[-1][0] if len(rows) == limit else 0)
        return len(old)

    def prune_requests(self, before: Micros, limit: int) -> int:
        return len(self.rows("prune_requests", before_at=before, limit=limit))


def _may_go(body: bytes) -> bool:
    """Whether a beat has contents, and none that somebody may still have to undo."""
    return not body.startswith(b'{"pruned"') and payloads.undo_step(body) is None
