"""Counts and times of a whole ledger, from its own events, whichever process, agent or command has made them."""

import threading
from collections import Counter, defaultdict

from holdfast.core.model import Micros
from holdfast.store.base import Session, Store
from holdfast.store.places import EndedJob
from holdfast.telemetry import families
from holdfast.telemetry.metrics import Labels, Metrics, Readings

PAGE = 10_000

Times = defaultdict[Labels, list[Micros]]


class Totals:
    """Counts from where the ledger stood when it was first looked at. Each look reads only what came after the last one."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._metrics = Metrics(families.LEDGER_COUNTERS, families.LEDGER_HISTOGRAMS)
        self._pos: int | None = None
        self._looked_at = float("-inf")
        self._lock = threading.Lock()

    def read(self, now: float, max_age: float) -> Readings:
        """`now` is a monotonic time. Where the last look was less than `max_age` seconds ago, its answer will do."""
        with self._lock:
            if now - self._looked_at >= max_age:
                self._look(self._store.settled_pos())
                self._looked_at = now
            return self._metrics.read()

    def _look(self, until: int) -> None:
        after = until if self._pos is None else self._pos
        while after < until:
            after = self._add(after, until)
            self._pos = after
        self._pos = until

    def _add(self, after: int, until: int) -> int:
        """Count one page of jobs that ended, and the events up to there."""

        def work(session: Session) -> tuple[list[EndedJob], int, dict[str, int]]:
            ended = session.ended_jobs(after, until, PAGE)
            end = ended[-1].pos if len(ended) == PAGE else until
            return ended, end, session.event_types(after, end)

        ended, end, events = self._store.read(work)
        counts: Counter[tuple[str, Labels]] = Counter()
        waits: Times = defaultdict(list)
        runs: Times = defaultdict(list)
        for type_, count in events.items():
            counts[families.LEDGER_EVENTS, (type_,)] += count
        for job in ended:
            counts[families.LEDGER_ENDED, (job.kind, job.outcome)] += 1
            if job.claimed_at is not None:
                waits[job.kind,].append(max(0, job.claimed_at - max(job.available_at, job.created_at)))
            if job.started_at is not None and job.finished_at is not None:
                runs[job.kind, job.outcome].append(max(0, job.finished_at - job.started_at))
        self._metrics.add(counts, {families.LEDGER_WAIT: waits, families.LEDGER_RUN: runs})
        return end
