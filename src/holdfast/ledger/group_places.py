"""The places of jobs in groups. A replay takes the place of the job that it repeats."""

from holdfast.core.groups import DEAD
from holdfast.core.model import JobRecord, Status
from holdfast.store.groups import GroupPlace
from holdfast.store.session import Session


def free_place(session: Session, job: JobRecord) -> GroupPlace | None:
    """Return the place in a group that a replay of this job takes, locked. None if the group has a better job there.

    That is one that an earlier replay has taken: it has succeeded, or has not ended.
    """
    place = session.group_place(job.id)
    if place is not None and place.job_id != job.id:
        session.lock([place.job_id])
        place = session.group_place(job.id)
    return place if place is not None and Status(place.status) in DEAD else None
