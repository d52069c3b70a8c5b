"""Totals and history: counting of events by pages, and what deletions take back."""

from abc import abstractmethod
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from holdfast.core import payloads
from holdfast.core.model import EventType, Micros
from holdfast.store.rows import BATCH_EVENTS_MAX
from holdfast.store.sealing import ANY_EVENT
from holdfast.store.statement_session import StatementSession
from holdfast.watch import tally as rules
from holdfast.watch.tally import EDGES_US, CountedEvents, Move, SeriesKey, Tally

OTHER = ""
"""The name of the history that queues, or kinds, without one of their own share. No queue and no kind has this name."""
TotalKey = tuple[str, str, str]
"""A queue, a kind and a status."""
_bodies = msgspec.json.Decoder(Tally)
_encode = msgspec.json.Encoder().encode


class HistoryProgress(NamedTuple):
    """How far events have been counted."""

    pos: int = 0
    at: Micros | None = None
    since_at: Micros | None = None
    deletions: int = 0


class TotalRow(NamedTuple):
    queue: str
    kind: str
    status: str
    n: int


class HistoryName(NamedTuple):
    """A queue or a kind that has a history of its own, and the last hour with an event."""

    scope: str
    name: str
    last_at: Micros


class HistoryRow(NamedTuple):
    scope: str
    name: str
    at: Micros
    body: str

    def tally(self) -> Tally:
        return _bodies.decode(self.body)


class _MovedEvent(NamedTuple):
    minute: int
    job_id: int
    rev: int
    kind: str
    type: str
    from_status: str | None
    to_status: str
    starts: bool
    wait: int | None
    run: int | None
    wait_us: int
    run_us: int


class _CountedJob(NamedTuple):
    """A job that is to be deleted."""

    id: int
    queue: str
    kind: str
    status: str
    updated_at: Micros
    is_new: bool
    """None of its events is counted."""
    is_near: bool
    """Some of its events may not be counted."""


class EventTally(NamedTuple):
    """A page of counted events."""

    progress: HistoryProgress
    """How far the events were counted before this page."""
    until: int
    newest: int
    """The position of its last event."""
    is_last: bool
    """There were no more events when the page was read."""
    totals: dict[TotalKey, int]
    history: dict[tuple[SeriesKey, int], Tally]
    """By scope and name, and by minute."""


class SqlHistory(StatementSession):
    """The part of a transaction that counts events."""

    careful: bool

    def history_progress(self) -> HistoryProgress:
        return self.record(HistoryProgress, "history_progress") or HistoryProgress()

    def next_page(self, until: int, limit: int) -> EventTally | None:
        """Return the page of the next `limit` events or a few more, up to a position, without counts. None: there are none."""
        progress = self.history_progress()
        if progress.pos >= until:
            return None
        [(end, count)] = self.rows("page_end", after=progress.pos, until=until, limit=limit, **ANY_EVENT)
        newest = progress.pos if end is None else min(end, until)
        is_last = end is None or count < limit
        return EventTally(progress, until if is_last else newest, newest, is_last, Counter(), defaultdict(Tally))

    def tally(self, page: EventTally) -> EventTally:
        """Count the events of a page. Nothing is written."""
        if page.newest > page.progress.pos:
            self._read_page(page)
        return page

    def _read_page(self, page: EventTally) -> None:
        has_moves = bool(self.value("has_moves"))
        chosen = {"after": page.progress.pos, "until": page.until}
        for row in self.rows("tally_events", has_moves=has_moves, edges=self._list(EDGES_US), **chosen):
            _count(page, CountedEvents(*row))
        if has_moves:
            self._read_moved(page, self.records(_MovedEvent, "tally_moved", edges=self._list(EDGES_US), **chosen))
        for minute, n in self.rows("tally_heartbeats", **chosen):
            page.history[("all", OTHER), minute].add(Tally(events={EventType.HEARTBEAT.value: n}))

    def _read_moved(self, page: EventTally, events: Sequence[_MovedEvent]) -> None:
        moves = self._moves({event.job_id for event in events})
        for event in events:
            of_job = moves[event.job_id]
            if event.type == "moved":
                move = next(move for move in of_job if move.rev == event.rev)
                for queue, n in ((move.from_queue, -1), (move.queue, 1)):
                    page.totals[queue, event.kind, event.to_status] += n
                    page.history[("queue", queue), event.minute].add(Tally(queued=n))
                _add(page, event.minute, move.queue, event.kind, Tally(events={event.type: 1}))
                continue
            queue = rules.queue_at(of_job, event.rev, of_job[-1].queue)
            _count(page, CountedEvents(event.minute, queue, *event[3:], n=1))

    def _moves(self, ids: Iterable[int]) -> dict[int, list[Move]]:
        found: dict[int, list[Move]] = defaultdict(list)
        for job_id, rev, body in self.rows("moves", ids=self._list(sorted(ids))):
            moved = payloads.decode(payloads.MovedPayload, body)
            found[job_id].append(Move(rev, moved.queue, moved.from_queue))
        return found

    def save_tally(self, page: EventTally, now: Micros) -> bool:
        """Add a page to totals and history. Return False and change nothing if the page is no longer the next one."""
        self.rows("ensure_progress")
        minutes = [minute for _, minute in page.history]
        end = now if page.is_last or not minutes else min(now, (max(minutes) + 1) * rules.MINUTE_US)
        moved = self.rows(
            "move_progress",
            pos=page.until,
            at=max(end, page.progress.at or 0),
            since_at=min(minutes) * rules.MINUTE_US if minutes else None,
            from_pos=page.progress.pos,
            deletions=page.progress.deletions,
        )
        if not moved:
            return False
        self._add_totals(page.totals)
        self._save_history(page.history, now)
        return True

    def lock_history(self) -> None:
        """Wait for those who count or delete events. None of them continues before this transaction ends."""
        self.rows("ensure_progress")
        self.rows("lock_progress")

    def _add_totals(self, changes: Mapping[TotalKey, int]) -> None:
        rows = [(*key, n) for key, n in sorted(changes.items()) if n]
        if rows:
            self._write_rows("add_totals", ("queue", "kind", "status", "n"), rows)
            self.rows("delete_zero_totals")

    def _save_history(self, found: Mapping[tuple[SeriesKey, int], Tally], now: Micros) -> None:
        named = self._named(found, now)
        rows: list[tuple[Any, ...]] = []
        for step in (*rules.STEPS_US, rules.EVER):
            slots: dict[tuple[SeriesKey, Micros], Tally] = defaultdict(Tally)
            for ((scope, name), minute), tally in found.items():
                slot = rules.slot_of(minute * rules.MINUTE_US, step)
                if rules.is_kept(step, scope, slot, now):
                    slots[(scope, name if (scope, name) in named else OTHER), slot].add(tally)
            for saved in self._saved(step, {slot for _, slot in slots}):
                if ((saved.scope, saved.name), saved.at) in slots:
                    slots[(saved.scope, saved.name), saved.at].add(saved.tally())
            rows += [(step, *key, slot, _encode(tally).decode()) for (key, slot), tally in slots.items()]
        if rows:
            self._write_rows("save_history", ("step", "scope", "name", "slot_at", "body"), rows)

    def _saved(self, step: str, slots: Iterable[Micros]) -> list[HistoryRow]:
        return self.records(HistoryRow, "history_at", step=step, times=self._list(sorted(slots)))

    def _named(self, found: Iterable[tuple[SeriesKey, int]], now: Micros) -> set[SeriesKey]:
        """Return which of these series have rows of their own, and note that they are in use."""
        known = {(row.scope, row.name): row.last_at for row in self.history_names()}
        hours = rules.last_hours(found, now)
        named = rules.with_own_history(known, hours)
        noted = [(*key, hour) for key, hour in hours.items() if key in named and known.get(key, 0) < hour]
        if noted:
            self._write_rows("save_history_names", ("scope", "name", "last_at"), noted)
        return named

    @abstractmethod
    def _write_rows(self, name: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Run a statement that writes many rows, each with these columns."""

    def delete_history(self, now: Micros, limit: int) -> int:
        """Delete rows that are older than they are kept, at most `limit` of each step. Return how many."""
        deleted = 0
        for step, kept_us in rules.KEPT_US.items():
            before = rules.slot_of(now - kept_us, step)
            deleted += len(self.rows("delete_history", step=step, before_at=before, limit=limit))
        self.rows("delete_history_names", before_at=now - rules.KEPT_US["hour"])
        self.rows("delete_unnamed_history")
        return deleted

    # What deletions take back

    def uncount(self, jobs: Sequence[int]) -> bool:
        """Take jobs that are about to be deleted out of the totals, as far as their events are counted.

        From here until the transaction ends no events are counted. Return False if, in a careful run, another transaction is
        counting: the jobs must stay.
        """
        self.rows("ensure_progress")
        progress = (
            self.record(HistoryProgress, "try_lock_progress") if self.careful else self.record(HistoryProgress, "lock_progress")
        )
        if progress is None:
            return False
        near = progress.pos - BATCH_EVENTS_MAX
        found = self.records(_CountedJob, "counted_jobs", ids=self._list(sorted(jobs)), pos=progress.pos, near=near)
        uncounted = self._uncounted([job.id for job in found if job.is_near], progress.pos)
        changes: Counter[TotalKey] = Counter()
        for job in found:
            if job.id not in uncounted:
                changes[job.queue, job.kind, job.status] -= 1
        behind = [job for job in found if job.id in uncounted]
        if behind:
            for key in self._counted_as([job for job in behind if not job.is_new], progress.pos):
                changes[key] -= 1
            newest = max(job.updated_at for job in behind)
            self.rows("note_deletions", since_at=max(progress.since_at or 0, newest))
        self._add_totals(changes)
        return True

    def _uncounted(self, jobs: Sequence[int], pos: int) -> set[int]:
        """Return which of these jobs have events that are not counted."""
        return {id_ for (id_,) in self.rows("uncounted_jobs", jobs=self._list(sorted(jobs)), pos=pos)} if jobs else set()

    def _counted_as(self, jobs: Sequence[_CountedJob], pos: int) -> list[TotalKey]:
        """Return the queue, kind and status of these jobs after the last of their events that is counted."""
        if not jobs:
            return []
        ids = sorted(job.id for job in jobs)
        last = {id_: (rev, status) for id_, rev, status in self.rows("counted_statuses", jobs=self._list(ids), pos=pos)}
        moves = self._moves(ids)
        return [
            (rules.queue_at(moves.get(job.id, ()), last[job.id][0], job.queue), job.kind, last[job.id][1])
            for job in jobs
            if job.id in last
        ]

    # Reading

    def totals(self) -> list[TotalRow]:
        return self.records(TotalRow, "totals")

    def history_names(self) -> list[HistoryName]:
        return self.records(HistoryName, "history_names")

    def history_series(self, step: str, scope: str, name: str, since: Micros) -> list[HistoryRow]:
        """Return the rows of one series from a time on."""
        return self.records(HistoryRow, "history_series", step=step, scope=scope, name=name, since_at=since)

    def history_since(self, step: str, scope: str, since: Micros) -> list[HistoryRow]:
        """Return the rows of all series of a scope from a time on."""
        return self.records(HistoryRow, "history_since", step=step, scope=scope, since_at=since)


def _count(page: EventTally, found: CountedEvents) -> None:
    for status, n in rules.changes_of(found).items():
        page.totals[found.queue, found.kind, status] += n
    _add(page, found.minute, found.queue, found.kind, rules.tally_of(found))


def _add(page: EventTally, minute: int, queue: str, kind: str, tally: Tally) -> None:
    for key in (("all", OTHER), ("queue", queue), ("kind", kind)):
        page.history[key, minute].add(tally)
