"""Verbs for schedules: set, read, pause, run and remove them."""

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Unpack

import msgspec

from holdfast.core import commands as c
from holdfast.core import limits
from holdfast.core import policy as policies
from holdfast.core.groups import FollowUp, closed_group, unknown_group
from holdfast.core.model import Actor, Role
from holdfast.core.schedule import Missed, Overlap, Position, ScheduleBody, Span, begin
from holdfast.errors import NotFound, ValidationError
from holdfast.ledger import validate
from holdfast.ledger.limit_keys import add_keys
from holdfast.ledger.public import Duration, EnqueueOptions, Job, flow_options, public_record, to_datetime
from holdfast.ledger.requests import FoundJob, Request
from holdfast.ledger.verbs.declarations import DeclarationVerb, declared_item
from holdfast.store.schedules import HANDLER, OPERATOR, ScheduleRow
from holdfast.store.session import EnqueuedRow, Session

if TYPE_CHECKING:
    from holdfast.core.payloads import EnqueuedPayload


class ScheduleRecord(msgspec.Struct, frozen=True):
    """A schedule: which job it makes, when, and what it has done."""

    name: str
    kind: str
    queue: str
    args: dict[str, Any]
    options: dict[str, Any]
    """Other options of its jobs, as `enqueue` names them."""
    cron: str | None
    every_s: float | None
    tz: str
    missed: str
    overlap: str
    jitter_s: float
    start_at: datetime | None
    end_at: datetime | None
    declared: bool
    """The handler of the kind has declared it."""
    created_at: datetime
    created_by: str
    updated_at: datetime
    paused_at: datetime | None
    paused_by: str | None
    next_at: datetime | None
    """The planned time of the next firing. None if it is paused, or has ended."""
    last_at: datetime | None
    """The planned time of the last firing that made a job."""
    last_job: int | None
    last_error: str | None
    """Why the last firing made no job, or made it without a limit."""
    fired: int
    """How many jobs it has made."""
    skipped: int
    """Firings that made no job: they were missed, an earlier job had not ended, or another job had the dedupe key."""


class ScheduleVerbs(DeclarationVerb):
    def set_schedule(
        self,
        name: str,
        kind: str,
        args: Mapping[str, Any] | None = None,
        *,
        cron: str | None = None,
        every: Duration | None = None,
        tz: str = "UTC",
        missed: str = "one",
        overlap: str = "allow",
        jitter: Duration = 0,
        start: datetime | None = None,
        end: datetime | None = None,
        queue: str | None = None,
        request_id: str | None = None,
        actor: str | Actor | None = None,
        **options: Unpack[EnqueueOptions],
    ) -> ScheduleRecord:
        """Make a schedule, or replace the one of this name. It makes jobs of the kind from now on, until it is paused or removed.

        `cron` has five fields and follows the clock of the time zone `tz`. `every` is a duration, counted from `start` or from
        midnight UTC of 1970-01-01. `missed` says what happens to firings that were due while no process swept: "skip", "one" job
        for all of them, or "all". `overlap` says what a firing does while the job before has not ended: "allow" both, "skip" the
        firing, or "cancel" that job. `jitter` delays each firing by up to so much. Without a `queue`, its jobs have the queue,
        limits and labels that the handler of the kind declares. The other options are those of `enqueue`.
        """
        limits.check_name("name", name)
        timing = read_timing(cron, every, tz, jitter, start, end)
        body = self._schedule_body(kind, args, queue, dict(options), timing, missed, overlap)
        self._check_limits(body)
        who = validate.actor(actor, Role.OPERATOR, self._actor)

        def work(session: Session) -> None:
            _check_group(session, body)
            _check_end(session, body)
            _put(session, name, body, kind, OPERATOR, who.name)

        self._set("set_schedule", (name, body), request_id, who, work)
        return self.schedule(name)

    def declare_schedules(
        self, kind: str, schedules: Mapping[str, Mapping[str, Any]], *, actor: str | Actor | None = None
    ) -> list[str]:
        """Declare the schedules of a kind's handler: by name, the arguments of `set_schedule` without name and kind.

        Schedules that the handler has declared before and does not declare now are removed. One that an operator has set under
        the same name stays as it is. Return the names that are not declared for that reason. Limits that the jobs draw on need
        not exist: until they do, jobs are made without them. Workers call this when they start.
        """
        limits.check_name("kind", kind)
        who = validate.actor(actor, Role.OPERATOR, self._actor)
        bodies = self._read_schedules(kind, schedules)

        def work(session: Session) -> list[str]:
            known = {row.name: row for row in session.schedules_of_kind(kind)}
            taken = []
            for name, body in bodies.items():
                row = known.pop(name, None) or session.schedule(name)
                if row is not None and (row.source == OPERATOR or row.kind != kind):
                    taken.append(name)
                elif row is None or row.decoded() != body:
                    _put(session, name, body, kind, HANDLER, who.name)
            for name in known:
                session.drop_schedule(name)
            return taken

        return self._pipeline.transact(work)

    def pause_schedule(self, name: str, *, request_id: str | None = None, actor: str | Actor | None = None) -> ScheduleRecord:
        """Let a schedule make no jobs. What it would have made meanwhile is not missed."""
        who = validate.actor(actor, Role.OPERATOR, self._actor)

        def work(session: Session) -> None:
            row = _found(session, name)
            if row.paused_at is None:
                session.pause_schedule(name, who.name, Position(None, None, row.position.runs()), None)

        self._set("pause_schedule", (limits.check_name("name", name),), request_id, who, work)
        return self.schedule(name)

    def resume_schedule(self, name: str, *, request_id: str | None = None, actor: str | Actor | None = None) -> ScheduleRecord:
        """Let a paused schedule make jobs again, from its next time on."""

        def work(session: Session) -> None:
            row = _found(session, name)
            if row.paused_at is not None:
                session.pause_schedule(name, None, *_begin(session, name, row.decoded(), row.position.made))

        self._set("resume_schedule", (limits.check_name("name", name),), request_id, actor, work)
        return self.schedule(name)

    def remove_schedule(self, name: str, *, request_id: str | None = None, actor: str | Actor | None = None) -> None:
        """Remove a schedule. Its jobs stay. One that a handler declares comes back when a worker starts: pause that one."""

        def work(session: Session) -> None:
            if not session.drop_schedule(name):
                raise _missing(name)

        self._set("remove_schedule", (limits.check_name("name", name),), request_id, actor, work)

    def run_schedule(self, name: str, *, request_id: str | None = None, actor: str | Actor | None = None) -> Job:
        """Make a job of a schedule now, also if it is paused. Its times and its rule for overlaps are not affected."""
        from holdfast.ledger.schedules import job_command

        who, request = validate.actor(actor, Role.OPERATOR, self._actor), validate.request_id(request_id)

        def look(session: Session) -> c.Enqueue:
            row = _found(session, limits.check_name("name", name))
            return add_keys(session, job_command(row.decoded(), None, request or self._entropy.nonce(), who))[0]

        command = self._store.read(look)
        hashed = validate.body_hash("run_schedule", name) if request else b""
        named = request is not None
        [answer] = self._pipeline.submit(Request("enqueue", [command], named, named, hashed)).answers
        if isinstance(answer, EnqueuedRow):
            return self.get(answer.job_id)  # type: ignore[attr-defined, no-any-return]
        if isinstance(answer, FoundJob):
            return Job(answer.job.id, answer.job, is_new=answer.is_new)
        raise answer

    # Reading

    def schedules(self, *, after: str = "", limit: int = limits.PAGE_MAX) -> list[ScheduleRecord]:
        """Return schedules by name, those after the name `after`."""
        validate.page_by_name(after, limit)
        return [_record(row) for row in self._store.read_statement(lambda session: session.schedules(after, limit))]

    def schedule(self, name: str) -> ScheduleRecord:
        """Return one schedule."""
        limits.check_name("name", name)
        return _record(self._store.read_statement(lambda session: _found(session, name)))

    def next_firings(
        self,
        name: str | None = None,
        *,
        cron: str | None = None,
        every: Duration | None = None,
        tz: str = "UTC",
        start: datetime | None = None,
        end: datetime | None = None,
        count: int = 10,
    ) -> list[datetime]:
        """Return the next planned times of a schedule, also if it is paused, or of one with these times, without jitter."""
        timing = read_firings_query(name, cron, every, tz, start, end, count)

        def look(session: Session) -> tuple[ScheduleBody, int]:
            if timing is not None:
                return ScheduleBody(msgspec.Raw(b"{}"), **timing), session.now()
            assert name is not None
            return _found(session, name).decoded(), session.now()

        return _times(*self._store.read(look), count)

    # Steps

    def _check_limits(self, body: ScheduleBody) -> None:
        """Raise an error if no job of a schedule could be made by the limits as they are now."""
        from holdfast.ledger.schedules import job_command

        if self._limit_keys is not None:
            self._limit_keys.add([job_command(body, None, "", validate.actor(None, Role.CLIENT, self._actor))])

    def _read_schedules(self, kind: str, given: Any) -> dict[str, ScheduleBody]:
        if not isinstance(given, Mapping):
            raise ValidationError("schedules must be a mapping of names", field="schedules")
        limits.check_count("schedules", len(given), limits.SCHEDULES_MAX)
        return {limits.check_name("name", name): self._read_schedule(kind, fields) for name, fields in given.items()}

    def _read_schedule(self, kind: str, given: Any) -> ScheduleBody:
        if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
            raise ValidationError("a schedule must be a mapping of its fields", field="schedules")
        fields = dict(given)
        timing = read_timing(**{name: fields.pop(name, default) for name, default in _TIMING_DEFAULTS.items()})
        chosen = {name: fields.pop(name, default) for name, default in (("missed", "one"), ("overlap", "allow"))}
        return self._schedule_body(kind, fields.pop("args", None), fields.pop("queue", None), fields, timing, **chosen)

    def _schedule_body(
        self, kind: str, args: Any, queue: str | None, options: dict[str, Any], timing: dict[str, Any], missed: str, overlap: str
    ) -> ScheduleBody:
        if options.get("available_at") is not None:
            raise ValidationError("the times of a schedule's jobs are its own; a delay is possible", field="available_at")
        if options.get("on_duplicate") == "postpone":
            raise ValidationError("a schedule plans its times, and cannot postpone a job", field="on_duplicate")
        given = {"kind": kind, "queue": queue, **{name: value for name, value in options.items() if value is not None}}
        if queue is None:
            del given["queue"]
            given = declared_item(given, self.declarations())
        command = self._enqueues.command(validate.actor(None, Role.CLIENT, self._actor), None, args=args, **given)
        return ScheduleBody(
            job=msgspec.Raw(command.payload),
            missed=validate.choice("missed", Missed, missed),
            overlap=validate.choice("overlap", Overlap, overlap),
            correlation_id=command.correlation_id,
            trace_id=command.trace_id,
            **timing,
        )


_TIMING_DEFAULTS: dict[str, Any] = {"cron": None, "every": None, "tz": "UTC", "jitter": 0, "start": None, "end": None}


def read_timing(cron: Any, every: Any, tz: Any, jitter: Any, start: Any, end: Any) -> dict[str, Any]:
    """Return when a schedule fires, as the fields of its body. Raise ValidationError if a value is wrong."""
    from holdfast.ledger.firing_times import read_cron, zone

    if (cron is None) == (every is None):
        raise ValidationError("a schedule has either cron or every", field="cron")
    if cron is not None:
        cron = read_cron(limits.check_text("cron", cron, limits.NAME_BYTES_MAX))
    elif tz != "UTC":
        raise ValidationError("tz is for cron; every counts in UTC", field="tz")
    zone(limits.check_text("tz", tz, limits.NAME_BYTES_MAX))
    every_us = None
    if every is not None:
        every_us = policies.duration_ms("every", every, limits.SCHEDULE_EVERY_MS_MIN, limits.SCHEDULE_EVERY_MS_MAX) * 1_000
    jitter_us = policies.duration_ms("jitter", jitter, 0, limits.SCHEDULE_JITTER_MS_MAX) * 1_000
    if every_us is not None and jitter_us > every_us:
        raise ValidationError("jitter is longer than every", field="jitter")
    start_at = None if start is None else validate.moment("start", start)
    end_at = None if end is None else validate.moment("end", end)
    if start_at is not None and end_at is not None and end_at < start_at:
        raise ValidationError("end is before start", field="end")
    return {"cron": cron, "every_us": every_us, "tz": tz, "jitter_us": jitter_us, "start_at": start_at, "end_at": end_at}


def read_firings_query(name: Any, cron: Any, every: Any, tz: Any, start: Any, end: Any, count: Any) -> dict[str, Any] | None:
    """Return when a schedule fires that does not exist, or None if `name` names one that exists."""
    limits.check_integer("count", count, 1, limits.FIRINGS_SHOWN_MAX)
    if name is None and cron is None and every is None:
        raise ValidationError("name a schedule, or give cron or every", field="name")
    if name is None:
        return read_timing(cron, every, tz, 0, start, end)
    if (cron, every, tz, start, end) != (None, None, "UTC", None, None):
        raise ValidationError("give the name of a schedule or its times, not both", field="name")
    limits.check_name("name", name)
    return None


def _put(session: Session, name: str, body: ScheduleBody, kind: str, source: str, by: str) -> None:
    """Save a schedule. Its next time stays if its times are the same as before."""
    row = session.schedule(name)
    if row is None:
        limits.check_count("schedules", session.count_schedules() + 1, limits.SCHEDULES_MAX)
    if row is not None and row.decoded().has_times_of(body):
        times = row.position, row.fire_at
    elif row is not None and row.paused_at is not None:
        times = Position(None, None), None
    else:
        times = _begin(session, name, body)
    session.put_schedule(name, kind, body, source, by, *times)


def _check_group(session: Session, body: ScheduleBody) -> None:
    """Raise an error if the jobs of a schedule could not join their group."""
    from holdfast.core import payloads

    name = payloads.decode(payloads.EnqueuedPayload, bytes(body.job)).group
    row = None if name is None else session.find_group(name)
    if name is not None and row is None:
        raise unknown_group(name)
    if row is not None and row.closed_at is not None:
        raise closed_group(row.name, "job")


def _check_end(session: Session, body: ScheduleBody) -> None:
    from holdfast.ledger.firing_times import ScheduleTimes

    if ScheduleTimes(body).after(session.now()) is None:
        raise ValidationError("the schedule would never fire: none of its times is left before its end", field="end")


def _begin(session: Session, name: str, body: ScheduleBody, runs: tuple[Span, ...] = ()) -> tuple[Position, int | None]:
    """Return the position of a schedule that begins now, and when its first firing is due."""
    from holdfast.ledger.firing_times import ScheduleTimes
    from holdfast.ledger.schedules import due_at

    position = begin(ScheduleTimes(body), session.now(), runs)
    return position, due_at(name, body, position)


def _found(session: Session, name: str) -> ScheduleRow:
    row = session.schedule(name)
    if row is None:
        raise _missing(name)
    return row


def _missing(name: str) -> NotFound:
    return NotFound(f"there is no schedule {name!r}", schedule=name)


def _times(body: ScheduleBody, now: int, count: int) -> list[datetime]:
    from holdfast.ledger.firing_times import ScheduleTimes

    times, at = ScheduleTimes(body), now
    found: list[datetime] = []
    while len(found) < count and (planned := times.after(at)) is not None:
        found.append(to_datetime(planned))
        at = planned
    return found


def _record(row: ScheduleRow) -> ScheduleRecord:
    from holdfast.core import payloads

    body = row.decoded()
    payload = payloads.decode(payloads.EnqueuedPayload, bytes(body.job))

    times = {name: None if at is None else to_datetime(at) for name, at in (("start_at", body.start_at), ("end_at", body.end_at))}
    return public_record(
        ScheduleRecord,
        row,
        queue=payload.queue,
        args=msgspec.json.decode(payload.args),
        options=job_options(body, payload),
        cron=body.cron,
        tz=body.tz,
        every_s=None if body.every_us is None else body.every_us / 1_000_000,
        jitter_s=body.jitter_us / 1_000_000,
        missed=body.missed.value,
        overlap=body.overlap.value,
        declared=row.source == HANDLER,
        **times,
    )


def job_options(body: ScheduleBody | FollowUp, payload: "EnqueuedPayload") -> dict[str, Any]:
    """Return the options of a stored job that were given, as `enqueue` names them."""
    found: dict[str, Any] = {
        "priority": payload.priority or None,
        "delay": payload.delay_us / 1_000_000 or None,
        "dedupe_key": payload.dedupe_key,
        "dedupe": "forever" if payload.dedupe_forever else None,
        "dedupe_for": payload.dedupe_for_us / 1_000_000 or None,
        "on_duplicate": None if payload.on_duplicate == "keep" else payload.on_duplicate,
        "tier": payload.tier,
        "policy": msgspec.json.decode(payload.policy) if isinstance(payload.policy, msgspec.Raw) else None,
        "group": payload.group,
        "depends_on": list(payload.depends_on) or None,
        "on_dependency_failure": payload.on_dependency_failure if payload.depends_on else None,
        **flow_options(payload.flow),
        "correlation_id": body.correlation_id,
        "trace_id": body.trace_id,
    }
    return {name: value for name, value in found.items() if value is not None}
