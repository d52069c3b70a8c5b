"""The state machine of a job: one table of transitions, from which `decide`, the audit, the docs and the diagram are made.

A job has one status. Four are live:

- queued: the job waits to be claimed. It can be claimed once `available_at` has passed.
- claimed: a worker holds the job under a lease. Its handler has not started.
- running: the holder runs its handler and is expected to send heartbeats.
- stalled: the ledger no longer trusts the holder. The lease is gone, but the fence is still valid.

Four are terminal: succeeded, failed, cancelled and dead_lettered (a person or a tool has to look at it). A terminal job never
changes again, except for notes. A replay makes a new job.

The usual path is queued → claimed → running → succeeded. `claim` starts a new attempt: it adds 1 to the attempt number, draws
a new fence, issues a lease and takes a snapshot of the policy. `start` makes the job running. Each heartbeat renews the lease.
`complete` stores the result.

A held job (claimed or running) becomes stalled when its holder sends no heartbeat, makes no progress, lets the lease end,
reports that it cannot go on, releases the job, or fails with a transient error while attempts are left. A stalled job then
takes one of these steps:

- resume → running, if the last holder sends a heartbeat or a request with its fence. It keeps its attempt and its fence.
- requeue → queued, after the policy's resume window. The job is available again after a backoff, or at once if released.
- claim → claimed: another worker takes the job by id after the resume window, as a new attempt. The last holder need not wait.
- exhaust → dead_lettered or failed, if no attempt is left. The policy chooses which.

So a job never goes from running to queued in one step: there is always a `stalled` event in between. Once a job is queued or
claimed again, its old fence is invalid and every write of the old holder is refused with `fence_lost`.

`fail` with a permanent error ends the job as failed, or as dead_lettered if it has a reason code. `cancel` immediately
ends a job that is not running. A running job first gets the phase aborting, so that its holder can stop safely and
acknowledge the cancel. A hard cancel does not wait. The other phases are executing and assisted (an operator is helping).

Each transition names the roles that may cause it. Workers claim jobs and write to those they hold; such a write must carry
the fence of the attempt. Clients and operators cancel, move, reprioritise and reschedule. Operators also assist, replay,
dead-letter and annotate. The system (the sweeper, and the ledger itself) stalls, resumes, requeues, exhausts and unblocks,
and may cancel, dead-letter and annotate. Every role may enqueue. Any other combination of status, verb and role is refused. A
refusal changes nothing and leaves no event.
"""

from typing import NamedTuple

from holdfast.core.model import HELD, LIVE, NOTES, TERMINAL, EventType, Role, Status

S, E, R = Status, EventType, Role


class Transition(NamedTuple):
    """One row of the table. `to` names the resulting statuses. It is empty if the status does not change."""

    verb: str
    sources: frozenset[Status]
    to: tuple[Status, ...]
    by: tuple[Role, ...]
    events: tuple[EventType, ...]
    rule: str


def _from(*statuses: Status) -> frozenset[Status]:
    return frozenset(statuses)


WORKER_ONLY = (R.WORKER,)
SYSTEM_ONLY = (R.SYSTEM,)
NOT_WORKER = (R.CLIENT, R.OPERATOR, R.SYSTEM)
OPERATOR_OR_SYSTEM = (R.OPERATOR, R.SYSTEM)
CLIENT_OR_OPERATOR = (R.CLIENT, R.OPERATOR)

TRANSITIONS: tuple[Transition, ...] = (
    Transition("claim", _from(S.QUEUED), (S.CLAIMED,), WORKER_ONLY, (E.CLAIMED,),
         "the next by queue list, priority, available_at and id, or one by id; attempt +1, new fence, lease and policy snapshot"),
    Transition("claim by id", _from(S.STALLED), (S.CLAIMED,), WORKER_ONLY, (E.CLAIMED,),
         "reclaims, once the resume window is over; the last holder also within it"),
    Transition("claim by id", HELD, (), WORKER_ONLY, (E.HEARTBEAT,),
         "its holder, lease live: renews, the attempt stays; another: lease_conflict; past the limit: stalled, then claimed"),
    Transition("start", _from(S.CLAIMED), (S.RUNNING,), WORKER_ONLY, (E.STARTED,),
         "counts as the first beat and renews the lease"),
    Transition("heartbeat", HELD, (), WORKER_ONLY, (E.HEARTBEAT,),
         "renews the lease; may carry stage, progress, a request for assistance, a checkpoint and an undo step"),
    Transition("heartbeat", _from(S.STALLED), (), WORKER_ONLY, (E.HEARTBEAT,),
         "from the last holder, with its fence: evidence of life only"),
    Transition("assist", _from(S.RUNNING), (), (R.OPERATOR,), (E.ASSIST_STARTED,),
         "phase executing → assisted"),
    Transition("unassist", _from(S.RUNNING), (), (R.OPERATOR,), (E.ASSIST_ENDED,),
         "phase assisted → executing"),
    Transition("stall", HELD, (S.STALLED,), SYSTEM_ONLY, (E.STALLED,),
         "only past the snapshot's limit, else not_stalled_yet; carries the snapshot"),
    Transition("stall", HELD, (S.STALLED,), WORKER_ONLY, (E.STALLED,),
         "the holder reports that it cannot go on"),
    Transition("resume", _from(S.STALLED), (S.RUNNING,), SYSTEM_ONLY, (E.RESUMED,),
         "only after a beat that came after the stall, of an attempt that had started; same fence, new lease"),
    Transition("resume", _from(S.STALLED), (S.RUNNING,), WORKER_ONLY, (E.RESUMED,),
         "the last holder, with its fence: its request is the proof of life"),
    Transition("requeue", _from(S.STALLED), (S.QUEUED,), SYSTEM_ONLY, (E.REQUEUED,),
         "available_at from the backoff; where attempts are used up: exhausted instead"),
    Transition("unblock", _from(S.QUEUED), (), SYSTEM_ONLY, (E.UNBLOCKED,),
         "the last job it depended on has succeeded: available from now, or from the time its caller asked for"),
    Transition("move", _from(S.QUEUED), (), CLIENT_OR_OPERATOR, (E.MOVED,),
         "to another queue; a dedupe key that a job there has is a conflict; its own queue is a no-op"),
    Transition("reprioritise", _from(S.QUEUED), (), CLIENT_OR_OPERATOR, (E.REPRIORITISED,),
         "another priority; the one it has is a no-op"),
    Transition("reschedule", _from(S.QUEUED), (), CLIENT_OR_OPERATOR, (E.RESCHEDULED,),
         "available from another time; not while it waits for other jobs; the time it has is a no-op"),
    Transition("release", HELD, (S.QUEUED,), WORKER_ONLY, (E.STALLED, E.REQUEUED),
         "an orderly hand-back: no backoff, does not count against attempts_max"),
    Transition("release", _from(S.STALLED), (S.QUEUED,), WORKER_ONLY, (E.REQUEUED,),
         "by the last holder of an attempt that had not started: there is nothing to resume"),
    Transition("complete", _from(S.RUNNING), (S.SUCCEEDED,), WORKER_ONLY, (E.SUCCEEDED,),
         "validators run first and may refuse it: refused_by_validator; also while aborting"),
    Transition("fail", _from(S.RUNNING), (S.FAILED,), WORKER_ONLY, (E.FAILED,),
         "permanent"),
    Transition("fail", _from(S.RUNNING), (S.DEAD_LETTERED,), WORKER_ONLY, (E.DEAD_LETTERED,),
         "permanent with a reason code: input that no retry can fix"),
    Transition("fail", _from(S.RUNNING), (S.QUEUED,), WORKER_ONLY, (E.STALLED, E.REQUEUED),
         "transient, attempts left: both steps in one transaction"),
    Transition("fail", _from(S.RUNNING), (S.CANCELLED,), WORKER_ONLY, (E.CANCELLED,),
         "transient, while aborting"),
    Transition("exhaust", _from(S.RUNNING, S.STALLED), (S.DEAD_LETTERED, S.FAILED), (R.WORKER, R.SYSTEM),
         (E.DEAD_LETTERED, E.FAILED),
         "attempt − releases ≥ attempts_max: by on_exhausted, dead_letter unless set; an undo job: compensation_failed"),
    Transition("cancel", _from(S.QUEUED, S.CLAIMED, S.STALLED), (S.CANCELLED,), NOT_WORKER, (E.CANCELLED,),
         "soft or hard: nothing is running"),
    Transition("cancel", _from(S.RUNNING), (), NOT_WORKER, (E.CANCEL_REQUESTED,),
         "soft: phase aborting; the answer to the holder's next beat says so; repeating it is a no-op"),
    Transition("cancel hard", _from(S.RUNNING), (S.CANCELLED,), NOT_WORKER, (E.CANCELLED,),
         "the fence is invalid at once; a soft cancel becomes a hard one past cancel_grace"),
    Transition("acknowledge_cancel", _from(S.RUNNING), (S.CANCELLED,), WORKER_ONLY, (E.CANCELLED,),
         "the holder of an aborting job made its safe exit"),
    Transition("dead_letter", LIVE, (S.DEAD_LETTERED,), OPERATOR_OR_SYSTEM, (E.DEAD_LETTERED,),
         "with every dead-letter field"),
    Transition("annotate", TERMINAL, (), OPERATOR_OR_SYSTEM, (E.COMPENSATED, E.COMPENSATION_FAILED, E.DISCARDED),
         "a note on a finished job; nothing else may be appended to one"),
)  # fmt: skip
"""Every transition of an existing job. `enqueue` and `replay` make a new job (→ queued, event enqueued)."""

STEPS: frozenset[tuple[EventType, Status | None, Status]] = frozenset(
    {(E.ENQUEUED, None, S.QUEUED), (E.REQUEUED, S.STALLED, S.QUEUED), (E.UNBLOCKED, S.QUEUED, S.QUEUED)}
    | {(kind, S.QUEUED, S.QUEUED) for kind in (E.MOVED, E.REPRIORITISED, E.RESCHEDULED)}
    | {(E.CLAIMED, source, S.CLAIMED) for source in (S.QUEUED, S.STALLED)}
    | {(E.STARTED, S.CLAIMED, S.RUNNING), (E.RESUMED, S.STALLED, S.RUNNING)}
    | {(E.STALLED, source, S.STALLED) for source in HELD}
    | {(E.HEARTBEAT, status, status) for status in (S.CLAIMED, S.RUNNING, S.STALLED)}
    | {(kind, S.RUNNING, S.RUNNING) for kind in (E.ASSIST_STARTED, E.ASSIST_ENDED, E.CANCEL_REQUESTED)}
    | {(E.SUCCEEDED, S.RUNNING, S.SUCCEEDED)}
    | {(E.FAILED, source, S.FAILED) for source in (S.RUNNING, S.STALLED)}
    | {(E.CANCELLED, source, S.CANCELLED) for source in LIVE}
    | {(E.DEAD_LETTERED, source, S.DEAD_LETTERED) for source in LIVE}
    | {(note, status, status) for note in NOTES for status in TERMINAL}
)
"""Every step that one event may record: (type, from, to). A transition with several events is made of these."""

EVENT_ROLES: dict[EventType, frozenset[Role]] = {
    event: frozenset(role for move in TRANSITIONS if event in move.events for role in move.by) for event in EventType
} | {E.ENQUEUED: frozenset({R.CLIENT, R.OPERATOR, R.SYSTEM, R.WORKER})}
"""The roles whose actors may cause an event of each type."""


def roles_without_fence(verb: str) -> frozenset[Role]:
    """Return the roles that may use `verb` without holding the job."""
    return frozenset(role for move in TRANSITIONS if move.verb == verb for role in move.by) - {R.WORKER}


def source_statuses(verb: str) -> frozenset[Status]:
    """Return the statuses from which `verb` is allowed, over all its rows."""
    return frozenset().union(*(move.sources for move in TRANSITIONS if move.verb == verb))
