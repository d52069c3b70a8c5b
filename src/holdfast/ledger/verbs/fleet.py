"""Verbs for workers, duties, queues, the liveness sweep and retention."""

import itertools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from datetime import datetime
from functools import partial
from typing import Any, Literal

import msgspec

from holdfast.core import limits
from holdfast.core import policy as policies
from holdfast.core.limits import PAGE_MAX
from holdfast.core.model import NEVER, Actor, Micros, Role
from holdfast.errors import ValidationError
from holdfast.ledger import validate
from holdfast.ledger.base import LedgerBase
from holdfast.ledger.counted import Counted, Rates, by_queue
from holdfast.ledger.public import WorkerRecord, public_worker, to_datetime
from holdfast.store.session import Session
from holdfast.watch.tally import Tally, is_other


class FleetVerbs(LedgerBase):
    def take_duty(self, name: str, holder: str, *, ttl: Any) -> bool:
        """Take a duty for `ttl` of ledger time, and return whether `holder` has it. Taking it again renews it.

        Return False while another holder has the duty. That ends when its time is over or when it drops the duty.
        """
        limits.check_name("name", name)
        limits.check_name("holder", holder)
        ttl_us = policies.duration_ms("ttl", ttl, limits.LEASE_MS_MIN, limits.DUTY_MS_MAX) * 1_000
        return self._pipeline.run_statement(lambda session: session.take_duty(name, holder, ttl_us))

    def wants_sweeping(self, holder: str) -> bool:
        """Return whether `holder` should take the sweep duty: there are jobs to watch, and no other holder has the duty.

        This costs one statement.
        """
        limits.check_name("holder", holder)
        return self._sweeper.look(holder)

    def drop_duty(self, name: str, holder: str) -> None:
        """Drop a duty, so that another holder can take it at once. If another holder has the duty, nothing happens."""
        limits.check_name("name", name)
        limits.check_name("holder", holder)
        self._pipeline.run_statement(lambda session: session.drop_duty(name, holder))

    def sign_in(self, worker: str, *, incarnation: str | None = None, body: Mapping[str, Any] | None = None) -> None:
        """Record that a worker is present. Call this again to renew the record.

        `body` is the worker's description of itself. Without one, the last one is kept.
        """
        who = validate.worker(worker, self.incarnation if incarnation is None else incarnation)
        text = None if body is None else _body(body)
        self._pipeline.run_statement(lambda session: session.sign_in(who.name, who.incarnation, text))

    def sign_out(self, worker: str, incarnation: str | None = None) -> None:
        """Remove the record of a worker that has shut down."""
        who = validate.worker(worker, self.incarnation if incarnation is None else incarnation)
        self._pipeline.run_statement(lambda session: session.sign_out(who.name, who.incarnation))

    def workers(self, *, seen_within: Any = None, limit: int = limits.PAGE_MAX) -> list[WorkerRecord]:
        """Return the workers that have signed in and not out, by name.

        `seen_within` restricts them to those seen recently. If there are more than `limit`, the most recently seen are returned.
        """
        limits.check_integer("limit", limit, 1, limits.PAGE_MAX)
        within_us = None
        if seen_within is not None:
            within_us = policies.duration_ms("seen_within", seen_within, 0, validate.DELAY_MS_MAX) * 1_000
        found = self._store.read_statement(lambda session: session.workers(within_us, limit))
        return sorted(map(public_worker, found), key=lambda worker: (worker.name, worker.incarnation))

    def until_ready(
        self,
        queues: Sequence[str] = ("default",),
        *,
        kinds: Sequence[str] | None = None,
        worker: str | None = None,
        labels: Sequence[str] = (),
    ) -> float | None:
        """Return the seconds of ledger time until the first delayed job of these queues can be claimed, or None if there is none.

        This is for a worker that has just claimed and got nothing. Jobs that were never delayed, paused queues and jobs that wait
        for dependencies are not considered. 0.0 means that a job can be claimed now. Another worker may claim it first. `worker`
        and `labels` are those of the claim. They matter in queues with limits, partitions or labels.
        """
        names, has = validate.names("queues", queues), validate.labels("labels", labels, limits.LABELS_PER_WORKER_MAX)
        wanted = None if kinds is None else validate.names("kinds", kinds)
        who = "" if worker is None else limits.check_name("worker", worker)
        found = self._store.read_statement(lambda session: session.next_ready(names, wanted))
        ready = [] if found.at is None else [found.at]
        if found.flow_queues:
            next_times = [
                self._store.read_statement(partial(_flow_next_at, queue, who, wanted, has)) for queue in found.flow_queues
            ]
            ready += [at for at in next_times if at is not None]
        first = min(ready, default=NEVER)
        return None if first == NEVER else max(0, first - found.now) / 1_000_000


def ready_queues(ledger: LedgerBase, queues: Sequence[str]) -> set[str]:
    """Return those of these queues from which a job can be claimed now.

    This is for a server, which claims for many workers: one statement says for which of them a claim is worth its cost.
    """
    return set(ledger._store.read_statement(lambda session: session.ready_queues(queues)))  # noqa: SLF001 - the same module


def _flow_next_at(
    queue: str, worker: str, kinds: tuple[str, ...] | None, labels: tuple[str, ...], session: Session
) -> Micros | None:
    return session.flow_next_at(queue, worker, kinds, labels)


def _body(given: Any) -> str:
    if not isinstance(given, Mapping):
        raise ValidationError("body must be a mapping", field="body")
    labels = given.get("labels")
    if isinstance(labels, list | tuple | Set):
        validate.refuse_own_labels("labels", labels)
    return validate.json_value("body", dict(given), limits.WORKER_BYTES_MAX).decode()


class UpkeepVerbs(LedgerBase):
    def pause(
        self, queue: str, *, reason: str | None = None, request_id: str | None = None, actor: str | Actor | None = None
    ) -> None:
        """Pause a queue: no more jobs are claimed from it. Jobs that are held are not affected.

        The actor and the reason are kept until the queue is unpaused.
        """
        limits.check_name("queue", queue)
        who, why = validate.actor(actor, Role.OPERATOR, self._actor), None if reason is None else validate.reason(reason)
        body = (queue,) if why is None else (queue, why)
        self._set("pause", body, request_id, who, lambda session: session.pause(queue, who.name, why))

    def unpause(self, queue: str, *, request_id: str | None = None, actor: str | Actor | None = None) -> None:
        """Let jobs be claimed from a paused queue again."""
        limits.check_name("queue", queue)
        self._set("unpause", (queue,), request_id, actor, lambda session: session.unpause(queue))
        self._store.wake([queue])

    @property
    def seconds_to_firing(self) -> float | None:
        """How long it was, when `wants_sweeping` was last called, until the next schedule is due. None if there is none."""
        return self._sweeper.seconds_to_firing

    def sweep(self, *, limit: int = 1_000) -> dict[str, int]:
        """Run one liveness tick: do what is due for up to `limit` jobs. Return how many events of each type that made.

        If an event must be signed and this process has no server key, its job is skipped. `unsigned` is the number of such jobs.
        """
        return self._sweeper.tick(limit)

    def prune(self, *, jobs_before: datetime | None = None, failed_before: datetime | None = None,
              beats_before: datetime | None = None, requests_before: datetime | None = None,
              workers_before: datetime | None = None, agents_before: datetime | None = None,
              sessions_before: datetime | None = None, subqueues_before: datetime | None = None,
              batch: int = 1_000) -> dict[str, int]:  # fmt: skip
        """Delete old records in one bounded step, and return how many of each kind were deleted.

        Finished jobs, contents of heartbeats and kept answers are deleted if they are older than the given times. Workers are
        deleted if they were not seen since. Agents' sessions are deleted if they were not active since and hold no job.
        Browser sessions and login codes are deleted if they expired before. Subqueues without jobs are deleted if no job was
        enqueued there since, nor in the last day. With them go slots, which are records of claims that use no limit any more.
        Once an hour, keys of limits go that no subqueue draws on and whose rate allows all again. They are not counted.

        Failed and dead-lettered jobs that are neither discarded nor replayed are kept. Only `failed_before` deletes them.
        `jobs_before` also deletes groups that were done before and of which no job is left. They are not counted.
        """
        limits.check_integer("batch", batch, 1, limits.PRUNE_BATCH_MAX)
        wanted = {
            "jobs": jobs_before,
            "failed": failed_before,
            "beats": beats_before,
            "requests": requests_before,
            "workers": workers_before,
            "agents": agents_before,
            "sessions": sessions_before,
            "subqueues": subqueues_before,
        }
        before = {name: validate.moment(f"{name}_before", at) for name, at in wanted.items() if at is not None}

        tries = itertools.count()

        def work(session: Session) -> dict[str, int]:
            session.careful = next(tries) > 0
            steps: dict[str, Callable[[Micros, int], int]] = {
                "beats": session.prune_beats,
                "requests": session.prune_requests,
                "workers": session.prune_workers,
                "agents": session.prune_agents,
                "sessions": session.prune_sessions,
                "subqueues": session.prune_subqueues,
            }
            done: dict[str, int] = {}
            if "jobs" in before or "failed" in before:
                done["jobs"], done["failed"] = session.prune_jobs(before.get("jobs"), before.get("failed"), batch)
            if "jobs" in before:
                session.prune_groups(before["jobs"], batch)
            done = {name: done[name] if name in done else steps[name](at, batch) for name, at in before.items()}
            if "subqueues" in before:
                done["slots"] = session.prune_slots(limits.SLOTS_WALKED_MAX)
            return done

        return self._pipeline.transact(work)


class QueueRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A queue that has jobs or is paused."""

    name: str
    counts: dict[str, int]
    """The number of jobs of each status. A status without jobs is left out."""
    ready_since: datetime | None = None
    """When the oldest ready job became ready, also if the queue is paused. None if no job is ready."""
    paused_at: datetime | None = None
    paused_by: str | None = None
    pause_reason: str | None = None
    dead_letters: int = 0
    """Dead letters that are neither discarded nor replayed, among the newest 10,000 of the ledger."""
    rates: Rates | None = None
    """None without a history of its own, or if less than a minute is counted."""


class QueueVerbs(LedgerBase):
    def paused(self) -> dict[str, datetime]:
        """Return the paused queues, each with the time at which it was paused."""
        return {pause.queue: to_datetime(pause.at) for pause in self._store.read(lambda session: session.pauses())}

    def queues(self) -> list[QueueRecord]:
        """Return every queue that has jobs or is paused, by name.

        The numbers are those of `job_totals`, so the time that it takes does not depend on the number of jobs.
        """
        return self._history.read(_records)


def _records(counted: Counted) -> list[QueueRecord]:
    since: dict[str, Micros] = {}
    for ready in counted.session.first_ready(1, PAGE_MAX):
        since.setdefault(ready.queue, ready.since)  # ordered by time, the oldest first
    return queue_records(counted, since)


def queue_records(counted: Counted, since: Mapping[str, Micros]) -> list[QueueRecord]:
    """Return every queue that has jobs or is paused, by name. `since` is when the oldest ready job of each became ready."""
    session = counted.session
    counts = by_queue(counted)
    pauses = {pause.queue: pause for pause in session.pauses()}
    letters, window, own = letters_left(session, "queue"), counted.rate_window(), counted.own_names("queue")
    lately = {} if window is None else counted.by_name("minute", "queue", window.first_minute)
    found = []
    for name in sorted(counts.keys() | pauses.keys()):
        pause = pauses.get(name)
        found.append(
            QueueRecord(
                name=name,
                counts=dict(counts.get(name, {})),
                ready_since=to_datetime(since[name]) if name in since else None,
                paused_at=None if pause is None else to_datetime(pause.at),
                paused_by=None if pause is None else pause.by,
                pause_reason=None if pause is None else pause.reason,
                dead_letters=letters[name],
                rates=None if window is None or is_other(name, own) else window.rates(lately.get(name, Tally())),
            )
        )
    return found


def letters_left(session: Session, scope: Literal["queue", "kind"]) -> Counter[str]:
    """Count the dead letters that are neither discarded nor replayed, by queue or kind."""
    left: Counter[str] = Counter()
    for row in session.count_letters(limits.GROUPED_LETTERS_MAX):
        left[row.queue if scope == "queue" else row.kind] += row.n - row.replayed
    return left
