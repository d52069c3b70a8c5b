"""Holdfast: a durable ledger of jobs for fleets of autonomous workers."""

from typing import TYPE_CHECKING, Any

from holdfast import errors
from holdfast.errors import (
    FenceLost,
    HoldfastError,
    JobCancelled,
    LeaseConflictError,
    PermanentError,
    TransientError,
    Unavailable,
    ValidationError,
)
from holdfast.version import __version__

if TYPE_CHECKING:
    from msgspec import Raw

    from holdfast.core.model import (
        Actor,
        EventType,
        FailureStage,
        Fence,
        Phase,
        Policy,
        ReasonCode,
        Role,
        StallReason,
        Status,
    )
    from holdfast.fences import check_fence
    from holdfast.ledger import Beat, Change, Event, Job, KeyRecord, Ledger, SinkState, WorkerRecord
    from holdfast.opening import draw_key, open
    from holdfast.worker import App, AsyncContext, Context, Worker

__all__ = [
    "Actor",
    "App",
    "AsyncContext",
    "Beat",
    "Change",
    "Context",
    "Event",
    "EventType",
    "FailureStage",
    "Fence",
    "FenceLost",
    "HoldfastError",
    "Job",
    "JobCancelled",
    "KeyRecord",
    "LeaseConflictError",
    "Ledger",
    "PermanentError",
    "Phase",
    "Policy",
    "Raw",
    "ReasonCode",
    "Role",
    "SinkState",
    "StallReason",
    "Status",
    "TransientError",
    "Unavailable",
    "ValidationError",
    "Worker",
    "WorkerRecord",
    "__version__",
    "check_fence",
    "draw_key",
    "errors",
    "open",
]

_ROOMS = {
    **dict.fromkeys(("App", "AsyncContext", "Context", "Worker"), "holdfast.worker"),
    **dict.fromkeys(("Beat", "Change", "Event", "Job", "KeyRecord", "Ledger", "SinkState", "WorkerRecord"), "holdfast.ledger"),
    **dict.fromkeys(
        ("Actor", "EventType", "FailureStage", "Fence", "Phase", "Policy", "ReasonCode", "Role", "StallReason", "Status"),
        "holdfast.core.model",
    ),
    "Raw": "msgspec",
    "check_fence": "holdfast.fences",
    "draw_key": "holdfast.opening",
    "open": "holdfast.opening",
}
"""Names whose rooms are entered only when somebody asks for them: a command line that beats once needs no ledger."""


def __getattr__(name: str) -> Any:
    room = _ROOMS.get(name)
    if room is None:
        raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
    from importlib import import_module

    found = globals()[name] = getattr(import_module(room), name)
    return found
