"""The five seed documents' names for what is one thing here. Read at the edge, offered on export, never stored."""

from holdfast.core.model import EventType, Phase, StallReason, Status

STATUS_ALIASES: dict[str, Status] = {
    "assigned": Status.CLAIMED,
    "orphaned": Status.STALLED,
    "in_progress": Status.RUNNING,
    "EXECUTING": Status.RUNNING,
    "ASSISTED": Status.RUNNING,
    "ABORTING_SAFE_EXIT": Status.RUNNING,
    "STALLED": Status.STALLED,
}

PHASE_ALIASES: dict[str, Phase] = {
    "EXECUTING": Phase.EXECUTING,
    "ASSISTED": Phase.ASSISTED,
    "ABORTING_SAFE_EXIT": Phase.ABORTING,
}

EVENT_ALIASES: dict[str, EventType] = {
    "JOB_HEARTBEAT": EventType.HEARTBEAT,
    "JOB_EXECUTION_STALLED": EventType.STALLED,
    "JOB_EXECUTION_RESUMED": EventType.RESUMED,
    "job_claimed": EventType.CLAIMED,
    "job_started": EventType.STARTED,
    "job_lease_renewed": EventType.HEARTBEAT,
    "job_heartbeat": EventType.HEARTBEAT,
    "job_succeeded": EventType.SUCCEEDED,
    "job_failed": EventType.FAILED,
    "job_cancelled": EventType.CANCELLED,
    "job_dead_lettered": EventType.DEAD_LETTERED,
    "job_compensated": EventType.COMPENSATED,
    "task_claimed": EventType.CLAIMED,
    "task_heartbeat": EventType.HEARTBEAT,
}

REASON_ALIASES: dict[str, StallReason] = {"ROBOT_ERROR": StallReason.WORKER_ERROR}


def status(name: str) -> Status:
    """The status behind any of its names. Raises ValueError for a name nobody uses."""
    return STATUS_ALIASES.get(name) or Status(name)


def phase(name: str) -> Phase:
    return PHASE_ALIASES.get(name) or Phase(name)


def event_type(name: str) -> EventType:
    return EVENT_ALIASES.get(name) or EventType(name)


def stall_reason(name: str) -> StallReason:
    return REASON_ALIASES.get(name) or StallReason(name)


def seed_names(kind: EventType) -> tuple[str, ...]:
    """What the seeds call an event of this type, in the order of the seeds."""
    return tuple(alias for alias, ours in EVENT_ALIASES.items() if ours is kind)
