"""What the ledger knows besides a job's own row, for whoever explains it."""

from collections.abc import Iterable

import msgspec

from holdfast.core.explain.shapes import AHEAD_MAX, Facts, Linked, Pause, SeenWorker
from holdfast.core.limits import DUTY_MS_MAX, PAGE_MAX
from holdfast.core.model import Job, Micros, ReasonCode, Status
from holdfast.core.proof.book import Book
from holdfast.core.proof.keys import KeyRole
from holdfast.core.undo import owes_undo
from holdfast.ledger.sweep import SWEEP_DUTY
from holdfast.store.base import JobFilter, Session, SignedIn


def facts_of(session: Session, job: Job, now: Micros, locked_by: str | None = None, *, to_claim: bool = False) -> Facts:
    """All of one snapshot, but for `locked_by`. What does not matter for the job's status is not asked for."""
    queued, live = job.status is Status.QUEUED, job.finished_at is None
    for_workers = queued and not to_claim
    return Facts(
        policy=session.policy_of(job),
        since=session.standing_since(job),
        pause=pauses_of(session).get(job.queue) if queued else None,
        ahead=session.ahead(job, AHEAD_MAX) if for_workers else 0,
        workers=tuple(seen(session.workers(None, PAGE_MAX))) if for_workers else (),
        agent_at=session.last_agent() if for_workers else None,
        is_asked_to_claim=to_claim,
        sweeper=sweeper_of(session, now),
        unmet=_unmet(session, job) if queued else _broken(session, job),
        replays=() if live else tuple(_linked(found) for found in session.jobs(JobFilter(replay_of=job.id, limit=PAGE_MAX))),
        undo=None if live else _undo(session, job),
        locked_by=locked_by,
        server_key=has_server_key(session) if job.policy is not None and job.policy.signed != "none" else True,
    )


def _linked(job: Job) -> Linked:
    return Linked(job.id, job.status)


def _unmet(session: Session, job: Job) -> tuple[Linked, ...]:
    """The jobs that it waits for, by id."""
    found = session.load(job.waits_for, lock=False) if job.waits_for else {}
    return tuple(_linked(found[id_]) for id_ in sorted(found))


def _broken(session: Session, job: Job) -> tuple[Linked, ...]:
    """Of a job that ended for want of its dependencies: those that came to nothing and were not replayed, by id."""
    if job.reason_code != ReasonCode.DEPENDENCY_UNAVAILABLE or not job.depends_on:
        return ()
    found = sorted(session.standings(job.depends_on).values())
    return tuple(Linked(one.id, one.status) for one in found if one.came_to_nothing and one.replay is None)


def _undo(session: Session, job: Job) -> Linked | None:
    if not owes_undo(job) and job.note is None:
        return None
    found = session.undo_job(job)
    return None if found is None else _linked(found)


def sweeper_of(session: Session, now: Micros) -> str | None:
    """Who has the duty to sweep. One that ends too late was taken while the clock was ahead, and is anybody's."""
    duty = session.duty(SWEEP_DUTY)
    in_time = duty is not None and now <= duty.expires_at <= now + 2 * DUTY_MS_MAX * 1_000
    return duty.holder if duty is not None and in_time else None


def has_server_key(session: Session) -> bool:
    return any(key.role == KeyRole.SERVER and key.valid() for key in Book(session.key_log()))


def pauses_of(session: Session) -> dict[str, Pause]:
    """The paused queues, by name."""
    return {found.queue: Pause(found.at, found.by, found.reason) for found in session.pauses()}


def seen(found: Iterable[SignedIn]) -> list[SeenWorker]:
    return [_seen(record) for record in found]


def _seen(record: SignedIn) -> SeenWorker:
    """A worker says of itself what it wants to: what is no list of names says nothing."""
    body = msgspec.json.decode(record.body)
    return SeenWorker(
        record.name, record.seen_at, _names(body.get("queues")), _names(body.get("kinds")), _numbers(body.get("keep"))
    )


def _numbers(said: object) -> dict[str, int]:
    return {name: value for name, value in said.items() if type(value) is int} if isinstance(said, dict) else {}


def _names(said: object) -> frozenset[str] | None:
    return frozenset(name for name in said if isinstance(name, str)) if isinstance(said, list) else None
