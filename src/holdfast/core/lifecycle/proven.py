"""Who holds a job, proven by a fence or by what was signed."""

from typing import Any

import msgspec

from holdfast.core import commands as c
from holdfast.core.model import Actor, Fence, Job, Micros, Role
from holdfast.core.proof.signed import Signed
from holdfast.core.signing import check_stated
from holdfast.errors import FenceLost


def by_holder(job: Job, fence: Fence, command: Any, now: Micros) -> c.JobCommand:
    """`command` in the name of the holder that its fence, or what it signed, proves it to be."""
    signed: Signed | None = getattr(command, "signed", None)
    holder = holder_of(job, fence, signed)
    if signed is not None:
        check_stated(job, command, holder, now)
    return msgspec.structs.replace(command, actor=holder)  # type: ignore[no-any-return]


def holder_of(job: Job, fence: Fence, signed: Signed | None = None) -> Actor:
    """The holder behind `fence`, or fence_lost. Compared as a whole: an attempt alone proves nothing.

    Without its token, a statement that names this attempt and the worker and incarnation it was given to proves the same: only
    that worker has the key, only that boot of it has the incarnation, and as with the token, whoever was given an earlier
    attempt, or has restarted since, is not the one. It dies with the token, too. What the token does not have, its counter
    gives: nobody who reads a statement on its way can use it again.
    """
    holder = Actor(Role.WORKER, job.owner or job.last_owner or "", job.incarnation or "")
    is_told = fence.token == job.token or (not fence.token and signed is not None and signed.said.actor == holder)
    if job.token is None or fence.attempt != job.attempt or not is_told:
        raise FenceLost(
            f"job {job.id} is no longer yours: attempt {job.attempt} is {job.status.value}"
            + (f", held by {job.owner}" if job.owner else ""),
            **job.held_by,
        )
    return holder
