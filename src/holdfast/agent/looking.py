"""A task, for whoever looks at it: nothing here changes anything, and nobody has to be an agent."""

import msgspec

from holdfast.agent.brief import Entry, InFull, entry, in_full
from holdfast.core import limits
from holdfast.core.model import Job
from holdfast.errors import NotFound
from holdfast.ledger import Ledger, admit
from holdfast.store.base import EventFilter, Session


class Past(msgspec.Struct, frozen=True):
    """A page of a task's history, the oldest first. `next_after` is where the next page begins; None where there is none."""

    job_id: int
    events: list[Entry]
    next_after: int | None


def look(ledger: Ledger, id_: int, *, bytes_max: int | None = None) -> InFull:
    """All about a task, whoever has it. What is longer than `bytes_max` is left out, and `omitted` says how long it is."""
    id_ = admit.job_id(id_)

    def work(session: Session) -> bytes:
        return msgspec.json.encode(in_full(session, _found(session, id_), bytes_max))

    return msgspec.json.decode(ledger.acting.look(work), type=InFull)


def past(ledger: Ledger, id_: int, *, after: int = 0, limit: int = limits.PAGE_MAX) -> Past:
    """What happened to a task after a position. Payloads are left out where a brief leaves them out."""
    id_ = admit.job_id(id_)
    limits.check_integer("limit", limit, 1, limits.PAGE_MAX)
    chosen = EventFilter(job_id=id_, after=limits.check_integer("after", after, 0, limits.JOB_ID_MAX), limit=limit)

    def work(session: Session) -> bytes:
        _found(session, id_)
        events = session.events(chosen)
        more = events[-1].pos if len(events) == limit else None
        return msgspec.json.encode(Past(id_, [entry(event) for event in events], more))

    return msgspec.json.decode(ledger.acting.look(work), type=Past)


def _found(session: Session, id_: int) -> Job:
    job = session.load([id_], lock=False).get(id_)
    if job is None:
        raise NotFound(f"there is no job {id_}", job_id=id_)
    return job
