"""Workers, duties, paused queues, declarations and supervised runs."""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from holdfast.core.limits import DUTY_MS_MAX
from holdfast.core.model import Micros
from holdfast.core.policy import Settings
from holdfast.store.statement_session import StatementSession


class DeclaredFlow(msgspec.Struct, frozen=True, omit_defaults=True):
    """The limits, with units, and the labels that the handler of a kind declares for its jobs."""

    limits: dict[str, int] = {}
    requires: tuple[str, ...] = ()


class Declaration(NamedTuple):
    """The queue, settings, limits and labels that the handler of a kind declares."""

    kind: str
    queue: str
    settings: Settings
    flow: DeclaredFlow
    at: Micros
    by: str


class WorkerRow(NamedTuple):
    """A worker that has signed in."""

    name: str
    incarnation: str
    started_at: Micros
    seen_at: Micros
    body: str
    holding: int
    """The number of jobs leased to it."""


class DutyHolder(NamedTuple):
    holder: str
    expires_at: Micros


class DutyStatus(NamedTuple):
    """The state of a duty. It is cheap to read, so every process may poll it."""

    now: Micros
    is_free: bool
    """Whether the caller could take the duty."""
    is_wanted: bool
    """Whether there is any job for the sweeper."""
    expires_at: Micros | None
    """When the current or last hold of the duty expires."""
    sweeping_since: Micros | None
    """Since when sweeps have run without a gap."""
    next_firing_at: Micros | None
    """When the next schedule is due."""


class NextReady(NamedTuple):
    """The ledger's time, when the next delayed job is available, and the queues that have subqueues."""

    now: Micros
    at: Micros | None
    flow_queues: list[str]


class PauseRow(NamedTuple):
    """A paused queue: when and by which actor it was paused, and why, if a reason was given."""

    queue: str
    at: Micros
    by: str
    reason: str | None


class RunRow(NamedTuple):
    """The last state that a supervisor has written of its run."""

    name: str
    body: str
    updated_at: Micros


class SqlFleet(StatementSession):
    def take_duty(self, name: str, holder: str, ttl_us: int) -> bool:
        params = {"name": name, "holder": holder, "ttl_us": ttl_us, "ttl_us_max": DUTY_MS_MAX * 1_000}
        return bool(self.rows("take_duty", now_at=self.stamp(), **params))

    def watch(self, name: str, holder: str) -> DutyStatus:
        params = {"name": name, "holder": holder, "ttl_us_max": DUTY_MS_MAX * 1_000}
        [(now, free, wanted, *times)] = self.rows("watch", now_at=self.stamp(), **params)
        return DutyStatus(now, bool(free), bool(wanted), *times)

    def duty(self, name: str) -> DutyHolder | None:
        """Return the last holder of a duty. Its time may have expired."""
        return self.record(DutyHolder, "duty", name=name)

    def fresh_since(self) -> Micros:
        """Return when all holders last got a fresh heartbeat interval, or 0."""
        return self.value("fresh", now_at=self.stamp()) or 0

    def note_fresh(self, at: Micros) -> None:
        """Note that the clock has stepped. Subqueues that were closed at a later time than now are opened."""
        self.rows("set_cursor", name="fresh", pos=at)
        self.rows("open_stepped_subqueues", now_at=self.stamp())

    def note_sweeping(self, since: Micros) -> None:
        self.rows("set_cursor", name="sweeping", pos=since)

    def drop_duty(self, name: str, holder: str) -> None:
        self.rows("drop_duty", name=name, holder=holder)

    def sign_in(self, name: str, incarnation: str, body: str | None) -> None:
        """Record that a worker was seen now. Without a body, the stored one is kept."""
        self.rows("sign_in", now_at=self.stamp(), name=name, incarnation=incarnation, body=body)

    def sign_out(self, name: str, incarnation: str) -> None:
        self.rows("sign_out", name=name, incarnation=incarnation)

    def workers(self, within_us: int | None, limit: int) -> list[WorkerRow]:
        """Return the `limit` workers seen last, latest first."""
        return self.records(WorkerRow, "workers", now_at=self.stamp(), within_us=within_us, limit=limit)

    def prune_workers(self, before: Micros, limit: int) -> int:
        return len(self.rows("prune_workers", before_at=before, limit=limit))

    def next_ready(self, queues: Sequence[str], kinds: Sequence[str] | None) -> NextReady:
        """Return when the first delayed job of these queues is or was available. Skip paused queues."""
        wanted = None if kinds is None else self._list(kinds)
        rows = self.rows("next_ready", now_at=self.stamp(), queues=self._list(queues), kinds=wanted)
        times = [at for _, at, _, _ in rows if at is not None]
        return NextReady(rows[0][0], min(times, default=None), [queue for _, _, queue, has_flow in rows if has_flow])

    def ready_queues(self, queues: Sequence[str]) -> list[str]:
        """Return those of these queues that are not paused and have a job that is available now."""
        return [name for (name,) in self.rows("ready_queues", now_at=self.stamp(), queues=self._list(queues))]

    # Queues

    def paused(self, queue: str) -> bool:
        return self.value("paused", queue=queue) is not None

    def pause(self, queue: str, by: str, reason: str | None) -> None:
        self.rows("set_paused", queue=queue, paused_at=self.now(), paused_by=by, pause_reason=reason)

    def unpause(self, queue: str) -> None:
        self.rows("set_paused", queue=queue, paused_at=None, paused_by=None, pause_reason=None)

    def pauses(self) -> list[PauseRow]:
        return self.records(PauseRow, "pauses")

    # Supervised runs

    def find_run(self, name: str) -> RunRow | None:
        return self.record(RunRow, "find_run", name=name)

    def runs(self, after: str, limit: int) -> list[RunRow]:
        """Return runs by name, after a name."""
        return self.records(RunRow, "runs", after=after, limit=limit)

    def save_run(self, name: str, body: str) -> None:
        self.rows("save_run", name=name, body=body, now_at=self.stamp())
