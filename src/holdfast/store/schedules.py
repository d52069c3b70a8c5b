"""Schedules: rows that say when which job is made next."""

from typing import Any, NamedTuple

import msgspec

from holdfast.core.doctor.model import ScheduleHealth
from holdfast.core.model import Micros
from holdfast.core.schedule import Position, ScheduleBody, Span
from holdfast.store.statement_session import StatementSession

_bodies = msgspec.json.Decoder(ScheduleBody)
_runs = msgspec.json.Decoder(tuple[Span, ...])
_encode = msgspec.json.Encoder().encode

HANDLER, OPERATOR = "handler", "operator"
"""Who has set a schedule: a handler that declares it, or anyone else."""


class ScheduleRow(NamedTuple):
    name: str
    kind: str
    body: str
    source: str
    created_at: Micros
    created_by: str
    updated_at: Micros
    paused_at: Micros | None
    paused_by: str | None
    next_at: Micros | None
    """The planned time of the next firing. None if there is none."""
    fire_at: Micros | None
    """When it is due. None also while the schedule is paused."""
    last_at: Micros | None
    """The planned time of the last firing."""
    last_job: int | None
    last_error: str | None
    """Why the last firing made no job, if it was refused."""
    fired: int
    skipped: int
    run_at: Micros | None
    made: str
    """Earlier runs as JSON."""

    @property
    def position(self) -> Position:
        return Position(self.next_at, self.run_at, _runs.decode(self.made))

    def decoded(self) -> ScheduleBody:
        return _bodies.decode(self.body)


class FiringRow(NamedTuple):
    """What a firing changes in its schedule, besides its position."""

    last_at: Micros | None = None
    last_job: int | None = None
    last_error: str | None = None
    fired: int = 0
    skipped: int = 0


def _columns(position: Position, fire_at: Micros | None) -> dict[str, Any]:
    made = _encode(position.made).decode()
    return {"next_at": position.next_at, "run_at": position.run_at, "made": made, "fire_at": fire_at}


class SqlSchedules(StatementSession):
    def schedules(self, after: str, limit: int) -> list[ScheduleRow]:
        """Return schedules by name."""
        return self.records(ScheduleRow, "schedules", after=after, limit=limit)

    def schedule(self, name: str) -> ScheduleRow | None:
        return self.record(ScheduleRow, "schedule", name=name)

    def schedules_of_kind(self, kind: str) -> list[ScheduleRow]:
        """Return the schedules that the handler of a kind has declared."""
        return self.records(ScheduleRow, "schedules_of_kind", kind=kind)

    def take_schedule(self, name: str) -> ScheduleRow | None:
        """Return a schedule, locked until the transaction ends. None if there is none, or another transaction has locked it."""
        return self.record(ScheduleRow, "take_schedule", name=name)

    def count_schedules(self) -> int:
        return int(self.value("count_schedules"))

    def due_schedules(self, limit: int) -> list[str]:
        """Return the names of schedules that are due, the longest due first."""
        return self.values("due_schedules", now_at=self.stamp(), limit=limit)

    def troubled_schedules(self, before: Micros, limit: int) -> list[ScheduleHealth]:
        """Return schedules that were due before a time, or whose last firing was refused."""
        return self.records(ScheduleHealth, "troubled_schedules", before_at=before, limit=limit)

    def put_schedule(
        self, name: str, kind: str, body: ScheduleBody, source: str, by: str, position: Position, fire_at: Micros | None
    ) -> None:
        encoded = _encode(body).decode()
        values = {"name": name, "kind": kind, "body": encoded, "source": source, "changed_by": by, "changed_at": self.now()}
        self.rows("put_schedule", **values, **_columns(position, fire_at))

    def pause_schedule(self, name: str, by: str | None, position: Position, fire_at: Micros | None) -> None:
        """Pause a schedule, or let it go on if `by` is None."""
        now = self.now()
        paused_at = None if by is None else now
        columns = _columns(position, fire_at)
        self.rows("pause_schedule", name=name, paused_at=paused_at, paused_by=by, changed_at=now, **columns)

    def save_firing(self, name: str, position: Position, fire_at: Micros | None, firing: FiringRow) -> None:
        self.rows("save_firing", name=name, **_columns(position, fire_at), **firing._asdict())

    def stepped_schedules(self, limit: int) -> list[str]:
        """Return the names of schedules that were changed or fired at a later time than now: the clock was set back since."""
        return self.values("stepped_schedules", now_at=self.stamp(), limit=limit)

    def save_position(self, name: str, position: Position, fire_at: Micros | None) -> None:
        self.rows("save_position", name=name, **_columns(position, fire_at))

    def drop_schedule(self, name: str) -> bool:
        return bool(self.rows("drop_schedule", name=name))
