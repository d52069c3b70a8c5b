"""Holdfast: a durable ledger of jobs for fleets of autonomous workers."""

from msgspec import Raw

from holdfast import errors
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
from holdfast.errors import FenceLost, HoldfastError, LeaseConflictError, Unavailable, ValidationError
from holdfast.fences import check_fence
from holdfast.ledger import Beat, Change, Event, Job, Ledger, SinkState
from holdfast.opening import open

__all__ = [
    "Actor",
    "Beat",
    "Change",
    "Event",
    "EventType",
    "FailureStage",
    "Fence",
    "FenceLost",
    "HoldfastError",
    "Job",
    "LeaseConflictError",
    "Ledger",
    "Phase",
    "Policy",
    "Raw",
    "ReasonCode",
    "Role",
    "SinkState",
    "StallReason",
    "Status",
    "Unavailable",
    "ValidationError",
    "check_fence",
    "errors",
    "open",
]

__version__ = "0.1.0"
