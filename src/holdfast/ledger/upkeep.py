"""Verbs on the ledger itself: queues, the liveness tick, retention."""

from collections.abc import Callable
from datetime import datetime

from holdfast.core import limits
from holdfast.core.model import Actor, Micros, Role
from holdfast.ledger import admit
from holdfast.ledger.desk import Desk
from holdfast.store.base import Session


class Upkeep(Desk):
    def pause(
        self, queue: str, *, reason: str | None = None, request_id: str | None = None, actor: str | Actor | None = None
    ) -> None:
        """Nothing more is claimed from the queue. Holders are not touched. Who did it, and why, is kept until it is unpaused."""
        limits.check_name("queue", queue)
        who, why = admit.actor(actor, Role.OPERATOR, self._actor), None if reason is None else admit.reason(reason)
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
        before = {name: admit.moment(f"{name}_before", at) for name, at in wanted.items() if at is not None}

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
