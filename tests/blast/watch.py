"""Count what a fault does to the jobs and workers that it does not concern."""

import time
from collections import Counter
from collections.abc import Collection, Iterable
from datetime import datetime
from types import TracebackType
from typing import Self

from holdfast import Event
from tests.blast.fleet import Fleet

SHARE = 0.9
"""The share of the short jobs enqueued during a fault that must be done during it."""
LATE_SECONDS = 4.0
"""How much longer a fault may last on a busy machine until these jobs are done."""
BACK_SECONDS = 15.0
"""The longest time after a fault until every worker sends heartbeats again."""
LOOK_SECONDS = 0.2
HARM = ("stalled", "resumed", "requeued", "failed", "dead_lettered", "cancelled")
SHOWN = 6


class Watch:
    """Watches the fleet over one fault: `with Watch(fleet) as watch:` begins before it, `watch.during(…)` is
    called while it lasts, and the end of the block checks the histories.

    `but` are the jobs that the fault concerns. `late` is for faults that stop all heartbeats for longer than a lease:
    then a job may be stalled and resumed, and only the long jobs are checked.
    """

    def __init__(self, fleet: Fleet, *, but: Collection[int] = (), late: bool = False) -> None:
        self._fleet = fleet
        self._but = set(but)
        self._may_be_late = late
        self._late: dict[int, float] = {}
        """Leases that expired while their jobs were held, and for how many seconds."""
        self._found: list[str] = []
        self._mark = 0

    def __enter__(self) -> Self:
        self._fleet.ready()
        self._mark = self._fleet.ledger.position()
        return self

    def spare(self, job_ids: Iterable[int]) -> None:
        """The fault concerns these jobs too."""
        self._but.update(job_ids)

    def during(self, seconds: float, *, orphan: int | None = None) -> None:
        """Let the fault last this long, and until the short jobs of that time are done and the orphan is requeued.

        If that does not happen within a little more time, it is a finding.
        """
        before, begun = self._fleet.done(), time.monotonic()
        wanted = {offer.queue: int(SHARE * offer.rate * seconds) for offer in self._fleet.offers}
        missing: list[str] = []
        while time.monotonic() < begun + seconds or (missing and time.monotonic() < begun + seconds + LATE_SECONDS):
            self._look()
            done = self._fleet.done()
            missing = [
                f"only {done.get(queue, 0) - before.get(queue, 0)} short jobs of {queue} were done in {seconds:g} s, not {count}"
                for queue, count in wanted.items()
                if done.get(queue, 0) - before.get(queue, 0) < count
            ]
            if orphan is not None and not self._fleet.ledger.events(orphan, types=["requeued"], after=self._mark):
                missing.append(f"no sweep: {self._fleet.describe(orphan)}")
            time.sleep(LOOK_SECONDS)
        self._found += missing

    def _look(self) -> None:
        if self._may_be_late:
            return
        ledger = self._fleet.ledger
        now: datetime = ledger.now()
        for job in ledger.list(status=["claimed", "running"], limit=1_000):
            if job.id in self._others() and job.claim_expires_at is not None and job.claim_expires_at < now:
                late = (now - job.claim_expires_at).total_seconds()
                self._late[job.id] = max(late, self._late.get(job.id, 0.0))

    def _others(self) -> set[int]:
        if self._may_be_late:
            return self._fleet.held.keys() - self._but
        return {*self._fleet.held, *(id_ for offer in self._fleet.offers for id_ in offer.ids)} - self._but

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is not None:
            return
        self.all_holders_beat()
        harmed = self._harmed()
        report = [
            *self._found,
            *([f"{len(self._late)} leases ran out: {self._shown_late()}"] if self._late else []),
            *([_counted(harmed)] if harmed else []),
            *(self._fleet.describe(job_id) for job_id in sorted({event.job_id for event in harmed})[:SHOWN]),
        ]
        assert not report, "\n".join(["others were harmed:", *report])
        assert [found for id_ in self._fleet.held for found in self._fleet.ledger.check(id_)] == []

    def all_holders_beat(self) -> None:
        """Wait for a new beat of each long job: by then every change to it is recorded. A missing heartbeat is a finding."""
        ledger, mark = self._fleet.ledger, self._fleet.ledger.position()
        deadline = time.monotonic() + BACK_SECONDS
        waiting = self._fleet.held.keys() - self._but
        while waiting and time.monotonic() < deadline:
            waiting = {id_ for id_ in waiting if not ledger.events(id_, types=["heartbeat"], after=mark)}
            time.sleep(LOOK_SECONDS)
        if waiting:
            described = [self._fleet.describe(id_) for id_ in sorted(waiting)[:SHOWN]]
            self._found += [f"{len(waiting)} jobs without beats after the fault:", *described]

    def _harmed(self) -> list[Event]:
        others, after, found = self._others(), self._mark, []
        harm = set(HARM) - ({"stalled", "resumed"} if self._may_be_late else set())
        while page := self._fleet.ledger.events(types=[*harm, "claimed"], after=after):
            found += [e for e in page if e.job_id in others and (e.type in harm or e.attempt > 1)]
            after = page[-1].pos
        return found

    def _shown_late(self) -> str:
        named = [f"job {id_} of {self._fleet.held.get(id_, 'short')} by {by:.1f} s" for id_, by in sorted(self._late.items())]
        return ", ".join(named[:SHOWN]) + (", …" if len(named) > SHOWN else "")


def _counted(harmed: list[Event]) -> str:
    counts = Counter("extra attempts" if event.type == "claimed" else str(event.type) for event in harmed)
    return f"{len({event.job_id for event in harmed})} jobs harmed: " + ", ".join(f"{n} {what}" for what, n in counts.items())
