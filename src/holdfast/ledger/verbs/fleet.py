"""Verbs on workers, duties and queues, on the liveness sweep and on retention."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from holdfast.core import limits
from holdfast.core import policy as policies
from holdfast.core.limits import PAGE_MAX
from holdfast.core.model import NEVER, Actor, Micros, Role
from holdfast.errors import ValidationError
from holdfast.ledger import validate
from holdfast.ledger.base import LedgerBase
from holdfast.ledger.public import WorkerRecord, public_worker, to_datetime
from holdfast.store.base import Session


class FleetVerbs(LedgerBase):
    def take_duty(self, name: str, holder: str, *, ttl: Any) -> bool:
        """Whether `holder` performs this duty from now on, for `ttl` of ledger time. Taking it again renews it.

        False while another holder has it: until that one's time is over, or it has dropped the duty.
        """
        limits.check_name("name", name)
        limits.check_name("holder", holder)
        ttl_us = policies.duration_ms("ttl", ttl, limits.LEASE_MS_MIN, limits.DUTY_MS_MAX) * 1_000
        return self._pipeline.run_statement(lambda session: session.take_duty(name, holder, ttl_us))

    def wants_sweeping(self, holder: str) -> bool:
        """Whether `holder` should take the duty to sweep: there are jobs to watch, and nobody else does. One statement."""
        limits.check_name("holder", holder)
        return self._sweeper.look(holder)

    def drop_duty(self, name: str, holder: str) -> None:
        """Others may take the duty at once. Nothing happens where another holder has it."""
        limits.check_name("name", name)
        limits.check_name("holder", holder)
        self._pipeline.run_statement(lambda session: session.drop_duty(name, holder))

    def sign_in(self, worker: str, *, incarnation: str | None = None, body: Mapping[str, Any] | None = None) -> None:
        """A worker is there; said again, it still is. `body` is what it tells of itself; without one, the last one stays."""
        who = validate.worker(worker, self.incarnation if incarnation is None else incarnation)
        text = None if body is None else _body(body)
        self._pipeline.run_statement(lambda session: session.sign_in(who.name, who.incarnation, text))

    def sign_out(self, worker: str, incarnation: str | None = None) -> None:
        """The worker is gone, in good order."""
        who = validate.worker(worker, self.incarnation if incarnation is None else incarnation)
        self._pipeline.run_statement(lambda session: session.sign_out(who.name, who.incarnation))

    def workers(self, *, seen_within: Any = None, limit: int = limits.PAGE_MAX) -> list[WorkerRecord]:
        """Who has signed in and not out, by name: all, or those seen lately. Beyond `limit`, those seen last."""
        limits.check_integer("limit", limit, 1, limits.PAGE_MAX)
        within_us = None
        if seen_within is not None:
            within_us = policies.duration_ms("seen_within", seen_within, 0, validate.DELAY_MS_MAX) * 1_000
        found = self._store.read_statement(lambda session: session.workers(within_us, limit))
        return sorted(map(public_worker, found), key=lambda worker: (worker.name, worker.incarnation))

    def until_ready(self, queues: Sequence[str] = ("default",), *, kinds: Sequence[str] | None = None) -> float | None:
        """Seconds of ledger time until the first delayed job of these queues may be claimed; None where there is none.

        For whoever has just claimed and found nothing: jobs that were never delayed are not looked at, nor are paused queues, nor
        jobs that wait for others.
        0.0 where one may be claimed now; somebody else may have it by the time it is claimed.
        """
        names = validate.names("queues", queues)
        wanted = None if kinds is None else validate.names("kinds", kinds)
        now, ready = self._store.read_statement(lambda session: session.next_ready(names, wanted))
        return None if ready is None or ready == NEVER else max(0, ready - now) / 1_000_000


def _body(given: Any) -> str:
    if not isinstance(given, Mapping):
        raise ValidationError("body must be a mapping", field="body")
    return validate.json_value("body", dict(given), limits.WORKER_BYTES_MAX).decode()


class UpkeepVerbs(LedgerBase):
    def pause(
        self, queue: str, *, reason: str | None = None, request_id: str | None = None, actor: str | Actor | None = None
    ) -> None:
        """Nothing more is claimed from the queue. Holders are not touched. Who did it, and why, is kept until it is unpaused."""
        limits.check_name("queue", queue)
        who, why = validate.actor(actor, Role.OPERATOR, self._actor), None if reason is None else validate.reason(reason)
        body = (queue,) if why is None else (queue, why)
        self._set("pause", body, request_id, who, lambda session: session.pause(queue, who.name, why))

    def unpause(self, queue: str, *, request_id: str | None = None, actor: str | Actor | None = None) -> None:
        limits.check_name("queue", queue)
        self._set("unpause", (queue,), request_id, actor, lambda session: session.unpause(queue))
        self._store.wake([queue])

    def sweep(self, *, limit: int = 1_000) -> dict[str, int]:
        """One liveness tick: everything that is due for up to `limit` jobs. Answers how many of each event that made.

        Where events have to be signed and no server key is here, jobs are left alone; `unsigned` says how many.
        """
        return self._sweeper.tick(limit)

    def prune(self, *, jobs_before: datetime | None = None, failed_before: datetime | None = None,
              beats_before: datetime | None = None, requests_before: datetime | None = None,
              workers_before: datetime | None = None, agents_before: datetime | None = None,
              batch: int = 1_000) -> dict[str, int]:  # fmt: skip
        """One bounded step of retention: finished jobs, contents of beats and kept answers older than the given times,
        workers not seen since, and where agents stood that were not at work since and hold nothing.

        Failed and dead-lettered jobs that are neither discarded nor replayed are kept; only `failed_before` deletes them."""
        limits.check_integer("batch", batch, 1, limits.PRUNE_BATCH_MAX)
        wanted = {
            "jobs": jobs_before,
            "failed": failed_before,
            "beats": beats_before,
            "requests": requests_before,
            "workers": workers_before,
            "agents": agents_before,
        }
        before = {name: validate.moment(f"{name}_before", at) for name, at in wanted.items() if at is not None}

        def work(session: Session) -> dict[str, int]:
            steps: dict[str, Callable[[Micros, int], int]] = {
                "beats": session.prune_beats,
                "requests": session.prune_requests,
                "workers": session.prune_workers,
                "agents": session.prune_agents,
            }
            done: dict[str, int] = {}
            if "jobs" in before or "failed" in before:
                done["jobs"], done["failed"] = session.prune_jobs(before.get("jobs"), before.get("failed"), batch)
            return {name: done[name] if name in done else steps[name](at, batch) for name, at in before.items()}

        return self._pipeline.transact(work)


class QueueRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A queue that has jobs or is paused."""

    name: str
    counts: dict[str, int]
    """How many jobs of each status; one that it has none of is left out."""
    ready_since: datetime | None = None
    """Since when the first of those that could be claimed could be, were the queue open; None where there is none."""
    paused_at: datetime | None = None
    paused_by: str | None = None
    pause_reason: str | None = None


class QueueVerbs(LedgerBase):
    def paused(self) -> dict[str, datetime]:
        """The paused queues and since when."""
        return {pause.queue: to_datetime(pause.at) for pause in self._store.read(lambda session: session.pauses())}

    def queues(self) -> list[QueueRecord]:
        """Every queue that has jobs or is paused, by name. It counts every job: not for a program that is in a hurry."""
        return self._store.read(_records)


def _records(session: Session) -> list[QueueRecord]:
    counts: dict[str, dict[str, int]] = {}
    for queue, status, jobs in session.counts():
        counts.setdefault(queue, {})[status] = jobs
    since: dict[str, datetime] = {}
    for ready in session.ready(PAGE_MAX):
        since.setdefault(ready.queue, to_datetime(ready.since))  # those that wait longest come first
    pauses = {pause.queue: pause for pause in session.pauses()}
    found = []
    for name in sorted(counts.keys() | pauses.keys()):
        pause = pauses.get(name)
        told = {} if pause is None else {"paused_at": to_datetime(pause.at), "paused_by": pause.by, "pause_reason": pause.reason}
        found.append(QueueRecord(name=name, counts=counts.get(name, {}), ready_since=since.get(name), **told))  # type: ignore[arg-type]
    return found
