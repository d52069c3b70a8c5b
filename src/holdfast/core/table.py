"""The transition table: the whole state machine on one page. Docs, diagram, checker and `decide` all read it here."""

from typing import NamedTuple

from holdfast.core.model import HELD, LIVE, NOTES, TERMINAL, EventType, Role, Status

S, E, R = Status, EventType, Role


class Transition(NamedTuple):
    """One line of the contract. `to` names the resulting statuses, `same` where it does not change."""

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
         "renews the lease; may carry stage, progress, a wish for assistance, a checkpoint and an undo step"),
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
         "the last job it depended on has succeeded: available from now, or from when its caller wanted it"),
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
         "permanent with a reason code: input that no retry will mend"),
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
         "soft: phase aborting; the holder learns of it with its next beat; repeating it is a no-op"),
    Transition("cancel hard", _from(S.RUNNING), (S.CANCELLED,), NOT_WORKER, (E.CANCELLED,),
         "the fence dies at once; also what a soft one becomes past cancel_grace"),
    Transition("acknowledge_cancel", _from(S.RUNNING), (S.CANCELLED,), WORKER_ONLY, (E.CANCELLED,),
         "the holder of an aborting job made its safe exit"),
    Transition("dead_letter", LIVE, (S.DEAD_LETTERED,), OPERATOR_OR_SYSTEM, (E.DEAD_LETTERED,),
         "with every dead-letter field"),
    Transition("annotate", TERMINAL, (), OPERATOR_OR_SYSTEM, (E.COMPENSATED, E.COMPENSATION_FAILED, E.DISCARDED),
         "a note on a finished job; nothing else may be appended to one"),
)  # fmt: skip
"""Besides these, `enqueue` and `replay` make a new job (→ queued, event enqueued)."""

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
"""Every single step an event may record: (type, from, to). Longer moves are made of these."""

EVENT_ROLES: dict[EventType, frozenset[Role]] = {
    event: frozenset(role for move in TRANSITIONS if event in move.events for role in move.by) for event in EventType
} | {E.ENQUEUED: frozenset({R.CLIENT, R.OPERATOR, R.SYSTEM, R.WORKER})}
"""Who may stand behind an event of each type."""


def roles_without_fence(verb: str) -> frozenset[Role]:
    """Who may ask for `verb` without holding the job."""
    return frozenset(role for move in TRANSITIONS if move.verb == verb for role in move.by) - {R.WORKER}


def source_statuses(verb: str) -> frozenset[Status]:
    """The statuses from which `verb` is allowed, over all its lines."""
    return frozenset().union(*(move.sources for move in TRANSITIONS if move.verb == verb))
