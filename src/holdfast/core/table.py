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


class Transition(NamedTuple):
    """One row of the table: `verb` takes a job from one of `sources` to one of `targets` and writes `events`.

    `targets` is empty if the status does not change. A row with several targets, or with several events and no target, writes one
    of its events. Any other row writes all of them, in this order. Workers need the fence of the attempt, except to claim.
    """

    verb: str
    sources: frozenset[Status]
    targets: tuple[Status, ...]
    roles: tuple[Role, ...]
    events: tuple[EventType, ...]
    rule: str


def _from(*statuses: Status) -> frozenset[Status]:
    return frozenset(statuses)


WORKER_ONLY = (Role.WORKER,)
OPERATOR_ONLY = (Role.OPERATOR,)
SYSTEM_ONLY = (Role.SYSTEM,)
NOT_WORKER = (Role.CLIENT, Role.OPERATOR, Role.SYSTEM)
WORKER_OR_SYSTEM = (Role.WORKER, Role.SYSTEM)
OPERATOR_OR_SYSTEM = (Role.OPERATOR, Role.SYSTEM)
CLIENT_OR_OPERATOR = (Role.CLIENT, Role.OPERATOR)

TRANSITIONS: tuple[Transition, ...] = (
    Transition("claim", _from(Status.QUEUED), (Status.CLAIMED,), WORKER_ONLY, (EventType.CLAIMED,),
        "Takes the next job by queue list, priority, available_at and id, or a job by id. Of a priority, jobs with partitions, "
        "limits, labels or a worker of their own take turns. Adds 1 to the attempt number, draws a "
        "new fence, grants a lease and takes a policy snapshot."),
    Transition("claim by id", _from(Status.STALLED), (Status.CLAIMED,), WORKER_ONLY, (EventType.CLAIMED,),
        "Starts a new attempt after the resume window. The last holder may do so within the window."),
    Transition("claim by id", HELD, (), WORKER_ONLY, (EventType.HEARTBEAT,),
        "The holder renews its live lease and keeps its attempt. Other workers get lease_conflict."),
    Transition("claim by id", HELD, (Status.CLAIMED,), WORKER_ONLY, (EventType.STALLED, EventType.CLAIMED),
        "Starts a new attempt of a job that is past its stall limit, or whose lease is over if its own holder claims it. Both "
        "events are in one transaction."),
    Transition("start", _from(Status.CLAIMED), (Status.RUNNING,), WORKER_ONLY, (EventType.STARTED,),
        "Counts as the first heartbeat and renews the lease."),
    Transition("heartbeat", HELD, (), WORKER_ONLY, (EventType.HEARTBEAT,),
        "Renews the lease. May carry a stage, progress, a request for assistance, a checkpoint and an undo step."),
    Transition("heartbeat", _from(Status.STALLED), (), WORKER_ONLY, (EventType.HEARTBEAT,),
        "Records that the last holder is alive. It renews no lease."),
    Transition("assist", _from(Status.RUNNING), (), OPERATOR_ONLY, (EventType.ASSIST_STARTED,),
        "Changes the phase from executing to assisted."),
    Transition("unassist", _from(Status.RUNNING), (), OPERATOR_ONLY, (EventType.ASSIST_ENDED,),
        "Changes the phase from assisted to executing."),
    Transition("stall", HELD, (Status.STALLED,), SYSTEM_ONLY, (EventType.STALLED,),
        "Allowed only past a limit of the policy snapshot, else not_stalled_yet. The event carries the snapshot."),
    Transition("stall", HELD, (Status.STALLED,), WORKER_ONLY, (EventType.STALLED,),
        "The holder reports that it cannot go on."),
    Transition("resume", _from(Status.STALLED), (Status.RUNNING,), SYSTEM_ONLY, (EventType.RESUMED,),
        "Allowed only if the attempt had started and has sent a heartbeat since the stall. The fence stays; the lease is new."),
    Transition("resume", _from(Status.STALLED), (Status.RUNNING,), WORKER_ONLY, (EventType.RESUMED,),
        "The last holder continues its attempt. Its request proves that it is alive."),
    Transition("requeue", _from(Status.STALLED), (Status.QUEUED,), SYSTEM_ONLY, (EventType.REQUEUED,),
        "The job is available again after the backoff. If no attempt is left, it is exhausted instead."),
    Transition("unblock", _from(Status.QUEUED), (), SYSTEM_ONLY, (EventType.UNBLOCKED,),
        "The last job that it depended on has succeeded. It is available now, or at the time that its caller asked for."),
    Transition("move", _from(Status.QUEUED), (), CLIENT_OR_OPERATOR, (EventType.MOVED,),
        "Moves the job to another queue or worker. A job there with its dedupe key is a conflict. No change is no event."),
    Transition("reprioritise", _from(Status.QUEUED), (), CLIENT_OR_OPERATOR, (EventType.REPRIORITISED,),
        "Sets another priority. Setting the present one changes nothing."),
    Transition("reschedule", _from(Status.QUEUED), (), CLIENT_OR_OPERATOR, (EventType.RESCHEDULED,),
        "Sets another available_at. Refused while the job waits for other jobs. Setting the present one changes nothing."),
    Transition("replace", _from(Status.QUEUED), (), tuple(Role), (EventType.REPLACED,),
        "An enqueue with the dedupe key of a job that was never claimed: the job gets its arguments, priority, tier and policy."),
    Transition("postpone", _from(Status.QUEUED), (), tuple(Role), (EventType.POSTPONED,),
        "The same, and the delay begins anew. The job is available at the latest postpone_max after it was enqueued."),
    Transition("release", HELD, (Status.QUEUED,), WORKER_ONLY, (EventType.STALLED, EventType.REQUEUED),
        "Returns the job to its queue without a backoff. The attempt does not count against attempts_max."),
    Transition("release", _from(Status.STALLED), (Status.QUEUED,), WORKER_ONLY, (EventType.REQUEUED,),
        "The last holder returns a job whose attempt had not started. There is nothing to resume."),
    Transition("release", _from(Status.RUNNING), (Status.CANCELLED,), WORKER_ONLY, (EventType.STALLED, EventType.CANCELLED),
        "Ends an aborting job: it is not queued again."),
    Transition("complete", _from(Status.RUNNING), (Status.SUCCEEDED,), WORKER_ONLY, (EventType.SUCCEEDED,),
        "Allowed while aborting too. Validators run first and may refuse it with refused_by_validator."),
    Transition("fail", _from(Status.RUNNING), (Status.FAILED,), WORKER_ONLY, (EventType.FAILED,),
        "A permanent error without a reason code."),
    Transition("fail", _from(Status.RUNNING), (Status.DEAD_LETTERED,), WORKER_ONLY, (EventType.DEAD_LETTERED,),
        "A permanent error with a reason code: no retry can help."),
    Transition("fail", _from(Status.RUNNING), (Status.QUEUED,), WORKER_ONLY, (EventType.STALLED, EventType.REQUEUED),
        "A transient error while attempts are left. Both events are in one transaction."),
    Transition("fail", _from(Status.RUNNING), (Status.CANCELLED,), WORKER_ONLY, (EventType.CANCELLED,),
        "A transient error of an aborting job."),
    Transition("exhaust", _from(Status.RUNNING, Status.STALLED), (Status.DEAD_LETTERED, Status.FAILED), WORKER_OR_SYSTEM,
        (EventType.DEAD_LETTERED, EventType.FAILED),
        "No attempt is left: attempt − releases ≥ attempts_max. on_exhausted chooses the status; the default is dead_letter. An "
        "undo job is dead-lettered with compensation_failed."),
    Transition("cancel", _from(Status.QUEUED, Status.CLAIMED, Status.STALLED), (Status.CANCELLED,), NOT_WORKER,
        (EventType.CANCELLED,),
        "Soft or hard: no handler is running, so the job ends at once."),
    Transition("cancel", _from(Status.RUNNING), (), NOT_WORKER, (EventType.CANCEL_REQUESTED,),
        "Soft: sets the phase to aborting. The answer to the holder's next heartbeat says so. A second one changes nothing."),
    Transition("cancel hard", _from(Status.RUNNING), (Status.CANCELLED,), NOT_WORKER, (EventType.CANCELLED,),
        "Makes the fence invalid at once. After cancel_grace, a soft cancel becomes a hard one."),
    Transition("acknowledge_cancel", _from(Status.RUNNING), (Status.CANCELLED,), WORKER_ONLY, (EventType.CANCELLED,),
        "The holder of an aborting job has stopped safely."),
    Transition("dead_letter", LIVE, (Status.DEAD_LETTERED,), OPERATOR_OR_SYSTEM, (EventType.DEAD_LETTERED,),
        "The event has all fields of a dead letter."),
    Transition("annotate", TERMINAL, (), OPERATOR_OR_SYSTEM,
        (EventType.COMPENSATED, EventType.COMPENSATION_FAILED, EventType.DISCARDED),
        "Adds a note to a finished job. No other event may follow its end."),
)  # fmt: skip
"""Every transition of an existing job. `enqueue` and `replay` make a new job (→ queued, event enqueued)."""

STEPS: frozenset[tuple[EventType, Status | None, Status]] = frozenset(
    {
        (EventType.ENQUEUED, None, Status.QUEUED),
        (EventType.UNBLOCKED, Status.QUEUED, Status.QUEUED),
        (EventType.MOVED, Status.QUEUED, Status.QUEUED),
        (EventType.REPRIORITISED, Status.QUEUED, Status.QUEUED),
        (EventType.RESCHEDULED, Status.QUEUED, Status.QUEUED),
        (EventType.REPLACED, Status.QUEUED, Status.QUEUED),
        (EventType.POSTPONED, Status.QUEUED, Status.QUEUED),
        (EventType.CLAIMED, Status.QUEUED, Status.CLAIMED),
        (EventType.CLAIMED, Status.STALLED, Status.CLAIMED),
        (EventType.STARTED, Status.CLAIMED, Status.RUNNING),
        (EventType.HEARTBEAT, Status.CLAIMED, Status.CLAIMED),
        (EventType.HEARTBEAT, Status.RUNNING, Status.RUNNING),
        (EventType.HEARTBEAT, Status.STALLED, Status.STALLED),
        (EventType.ASSIST_STARTED, Status.RUNNING, Status.RUNNING),
        (EventType.ASSIST_ENDED, Status.RUNNING, Status.RUNNING),
        (EventType.CANCEL_REQUESTED, Status.RUNNING, Status.RUNNING),
        (EventType.STALLED, Status.CLAIMED, Status.STALLED),
        (EventType.STALLED, Status.RUNNING, Status.STALLED),
        (EventType.RESUMED, Status.STALLED, Status.RUNNING),
        (EventType.REQUEUED, Status.STALLED, Status.QUEUED),
        (EventType.SUCCEEDED, Status.RUNNING, Status.SUCCEEDED),
        (EventType.FAILED, Status.RUNNING, Status.FAILED),
        (EventType.FAILED, Status.STALLED, Status.FAILED),
    }
    | {(EventType.CANCELLED, source, Status.CANCELLED) for source in LIVE}
    | {(EventType.DEAD_LETTERED, source, Status.DEAD_LETTERED) for source in LIVE}
    | {(note, status, status) for note in NOTES for status in TERMINAL}
)
"""Every step that one event may record: (type, from, to). A transition with several events is made of these."""

EVENT_ROLES: dict[EventType, frozenset[Role]] = {
    event: frozenset(role for row in TRANSITIONS if event in row.events for role in row.roles) for event in EventType
} | {EventType.ENQUEUED: frozenset(Role)}
"""The roles whose actors may cause an event of each type."""


def roles_without_fence(verb: str) -> frozenset[Role]:
    """Return the roles that may use `verb` without holding the job."""
    return frozenset(role for row in TRANSITIONS if row.verb == verb for role in row.roles) - {Role.WORKER}


def source_statuses(verb: str) -> frozenset[Status]:
    """Return the statuses from which `verb` is allowed, over all its rows."""
    return frozenset().union(*(row.sources for row in TRANSITIONS if row.verb == verb))
