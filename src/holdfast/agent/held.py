"""What is claimed: by one agent, or by anybody for too long."""

from typing import Any

from holdfast.agent.tasks import Collected
from holdfast.core.limits import PAGE_MAX, check_integer
from holdfast.core.model import HELD, EventType
from holdfast.errors import SignatureInvalid
from holdfast.ledger import Ledger
from holdfast.ledger.acting import Acts
from holdfast.ledger.face import Job

HELD_STATUSES = tuple(sorted(status.value for status in HELD))


def held_by(
    ledger: Ledger, name: str, session: str | None = None, *, status: Any = None, after: int = 0, limit: int = 100, **chosen: Any
) -> list[Job]:
    """A page of the tasks that an agent holds, in any session or in this one, however many of others' lie between them."""
    check_integer("limit", limit, 1, PAGE_MAX)
    found: list[Job] = []
    while len(found) < limit:
        page = ledger.list(status=status or HELD_STATUSES, after=after, limit=PAGE_MAX, **chosen)
        found += [job for job in page if job.owner == name and session in (None, job.record.incarnation)]
        if len(page) < PAGE_MAX:
            break
        after = page[-1].id
    return found[:limit]


def collect(acts: Acts, limit: int) -> Collected:
    """Release up to `limit` expired claims. What is due for other reasons, or is not for this process to sign, is passed by."""
    released: list[int] = []
    after, more = 0, True
    while more and len(released) < limit:
        due = acts.session.due(after, limit - len(released))[1]
        more = len(due) == limit - len(released)
        found = acts.session.load(due, lock=True) if due else {}
        released += [id_ for id_ in due if id_ in found and found[id_].status in HELD and _release(acts, id_)]
        after = due[-1] if due else after
    return Collected(released, more)


def _release(acts: Acts, job_id: int) -> bool:
    try:
        return EventType.STALLED in acts.sweep(job_id)
    except SignatureInvalid:
        return False
