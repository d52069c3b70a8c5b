"""decide(job, command, now): what a command does, as events. All rules of the state machine are in this room and in the table.

A refusal is raised and changes nothing. Rows are never edited: each event is folded in with `evolve`, so what decide
answers and what a reader folds later are the same thing by construction.
"""

from holdfast.core import commands as c
from holdfast.core.lifecycle import holders, outside
from holdfast.core.lifecycle.birth import enqueued, replay_of
from holdfast.core.lifecycle.draft import Draft, Outcome, check_role
from holdfast.core.lifecycle.proven import by_holder, holder_of
from holdfast.core.model import Fence, Job, Micros
from holdfast.core.table import outsiders
from holdfast.errors import Conflict, NotFound

__all__ = ["Outcome", "decide", "enqueued", "holder_of", "replay_of"]

_DECISIONS = holders.VERBS | {command: decision for command, (_, decision) in outside.VERBS.items()}


def decide(job: Job | None, command: c.JobCommand, now: Micros) -> Outcome:
    """What `command` does to `job` at ledger time `now`, or a refusal."""
    if job is None:
        raise NotFound(f"there is no job {command.job_id}", job_id=command.job_id)
    fence: Fence | None = getattr(command, "fence", None)
    if fence is not None:
        command = by_holder(job, fence, command, now)
    elif (by_others := outside.VERBS.get(type(command))) is not None:
        check_role(by_others[0], command.actor, outsiders(by_others[0]))
    if command.expected_rev is not None and command.expected_rev != job.rev:
        raise Conflict(
            f"job {job.id} is at rev {job.rev}, not {command.expected_rev}",
            expected_rev=command.expected_rev,
            **job.held_by,
        )
    draft = Draft(job, now, command)
    _DECISIONS[type(command)](draft, command)
    return draft.outcome()
