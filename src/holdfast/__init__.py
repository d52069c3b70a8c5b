"""Holdfast: a durable ledger of jobs for fleets of autonomous workers."""

from holdfast.version import __version__

TYPE_CHECKING = False

if TYPE_CHECKING:
    from msgspec import Raw

    from holdfast import aio, errors
    from holdfast.composition import draw_key, open
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
    from holdfast.errors import (
        FenceLost,
        HoldfastError,
        JobCancelled,
        LeaseConflictError,
        NoResult,
        PermanentError,
        ResultTimeout,
        TransientError,
        Unavailable,
        ValidationError,
    )
    from holdfast.keeping import supervised
    from holdfast.ledger import (
        Beat,
        Change,
        Event,
        HeldJob,
        Job,
        JobPage,
        KeyRecord,
        Ledger,
        NewToken,
        SessionRecord,
        SinkState,
        TokenRecord,
        WorkerRecord,
    )
    from holdfast.ledger.fences import check_fence
    from holdfast.ledger.public import CallOptions, Duration, EnqueueOptions, PolicyFields
    from holdfast.worker import App, AsyncContext, BatchContext, Context, Worker
    from holdfast.worker.worker import WorkerSettings

__all__ = [
    "Actor",
    "App",
    "AsyncContext",
    "BatchContext",
    "Beat",
    "CallOptions",
    "Change",
    "Context",
    "Duration",
    "EnqueueOptions",
    "Event",
    "EventType",
    "FailureStage",
    "Fence",
    "FenceLost",
    "HeldJob",
    "HoldfastError",
    "Job",
    "JobCancelled",
    "JobPage",
    "KeyRecord",
    "LeaseConflictError",
    "Ledger",
    "NewToken",
    "NoResult",
    "PermanentError",
    "Phase",
    "Policy",
    "PolicyFields",
    "Raw",
    "ReasonCode",
    "ResultTimeout",
    "Role",
    "SessionRecord",
    "SinkState",
    "StallReason",
    "Status",
    "TokenRecord",
    "TransientError",
    "Unavailable",
    "ValidationError",
    "Worker",
    "WorkerRecord",
    "WorkerSettings",
    "__version__",
    "aio",
    "check_fence",
    "draw_key",
    "errors",
    "open",
    "supervised",
]

_MODULES: dict[str, tuple[str, ...]] = {
    "holdfast.core.model": (
        "Actor",
        "EventType",
        "FailureStage",
        "Fence",
        "Phase",
        "Policy",
        "ReasonCode",
        "Role",
        "StallReason",
        "Status",
    ),
    "holdfast.errors": (
        "FenceLost",
        "HoldfastError",
        "JobCancelled",
        "LeaseConflictError",
        "NoResult",
        "PermanentError",
        "ResultTimeout",
        "TransientError",
        "Unavailable",
        "ValidationError",
    ),
    "holdfast.ledger.fences": ("check_fence",),
    "holdfast.ledger": (
        "Beat",
        "Change",
        "Event",
        "HeldJob",
        "Job",
        "JobPage",
        "KeyRecord",
        "Ledger",
        "NewToken",
        "SessionRecord",
        "SinkState",
        "TokenRecord",
        "WorkerRecord",
    ),
    "holdfast.ledger.public": (
        "CallOptions",
        "Duration",
        "EnqueueOptions",
        "PolicyFields",
    ),
    "holdfast.composition": (
        "draw_key",
        "open",
    ),
    "holdfast.worker": (
        "App",
        "AsyncContext",
        "BatchContext",
        "Context",
        "Worker",
    ),
    "holdfast.worker.worker": ("WorkerSettings",),
    "msgspec": ("Raw",),
}
"""The module of each name. A module is imported when one of its names is first used: `task heartbeat` needs only a few."""
_PACKAGES = {"aio": "holdfast", "errors": "holdfast", "supervised": "holdfast.keeping"}
"""The package of each name that is a module."""
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


if not TYPE_CHECKING:  # type checkers see the imports above, and report every other name

    def __getattr__(name: str) -> object:
        from importlib import import_module

        if name in _PACKAGES:
            return import_module(f"{_PACKAGES[name]}.{name}")
        if name not in _MODULE_OF:
            raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
        found = globals()[name] = getattr(import_module(_MODULE_OF[name]), name)
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
