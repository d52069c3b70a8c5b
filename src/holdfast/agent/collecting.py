"""What is claimed, by anybody, for too long."""

from holdfast.agent.tasks import Collected
from holdfast.core.model import HELD, EventType
from holdfast.errors import SignatureInvalid
from holdfast.ledger.acting import Acts


def collect(acts: Acts, limit: int) -> Collected:
    """Release up to `limit` expired claims. What is due for other reasons, or is not for this process to sign, is passed by."""
    released: list[int] = []
    after, more = 0, True
    while more and len(released) < limit:
        _, _, due = acts.session.due(after, limit - len(released))
        more = len(due) == limit - len(released)
        locked = acts.session.try_lock(due)
        found = acts.session.load([id_ for id_ in due if id_ not in locked], lock=False) if due else {}
        released += [id_ for id_ in due if id_ in found and found[id_].status in HELD and _release(acts, id_)]
        after = due[-1] if due else after
    return Collected(released, more)


def _release(acts: Acts, job_id: int) -> bool:
    try:
        return EventType.STALLED in acts.sweep(job_id)
    except SignatureInvalid:
        return False
