"""Errors and events as short texts for people."""

from collections.abc import Mapping
from typing import Any

from holdfast.core.model import EventType, StallReason
from holdfast.core.text import truncate

RETRIED = "retried"
"""Shown instead of `stalled` for an event that records a transient error. Another attempt follows."""
EVENT_ERROR_CHARACTERS_MAX = 200
_CHANGED_FIELDS: Mapping[str, str] = {EventType.MOVED: "queue", EventType.REPRIORITISED: "priority"}
"""The field of an event that is shown with its old and its new value."""

_CALLS: Mapping[str, str] = {
    EventType.REPLACED: "a call with the same dedupe key has replaced its arguments",
    EventType.POSTPONED: "a call with the same dedupe key has replaced its arguments and begun its delay anew",
}
"""Events that an enqueue with the job's dedupe key makes, and what it has done."""


def format_error(error: Any, characters_max: int) -> str:
    """Return the recorded error of an attempt in one line: `TransientError: the server said 503`."""
    if isinstance(error, dict) and "message" in error:
        error = f"{error['type']}: {error['message']}" if "type" in error else error["message"]
    line = str(error).strip().partition("\n")[0]
    return truncate(line, characters_max)


def _describe_change(name: str, payload: Mapping[str, Any]) -> str:
    """Return the old and the new value of a field, and the new worker of a moved job, if it has one."""
    before, after, worker = payload[f"from_{name}"], payload[name], payload.get("for_worker")
    changed = "" if worker is not None and before == after else f"from {before} to {after}"
    assigned = "" if worker is None else f"to the worker {worker}" if worker else "to any worker"
    return ", ".join(filter(None, (changed, assigned)))


def is_retry(type_: str, reason: str | None) -> bool:
    """Return whether an event records that an attempt failed with a transient error."""
    return type_ == EventType.STALLED and reason == StallReason.TRANSIENT_ERROR


def describe_event(type_: str, reason: str | None, payload: Mapping[str, Any]) -> tuple[str, str]:
    """Return what happened and why, for people to read. The reason is followed by the error, if there is one.

    A retry is `("retried", "TransientError: the server said 503")`.
    """
    if (name := _CHANGED_FIELDS.get(type_)) is not None and name in payload:
        return str(type_), _describe_change(name, payload)
    if type_ in _CALLS:
        return str(type_), _CALLS[type_]
    error = payload.get("error", payload.get("last_error"))
    line = "" if error is None else format_error(error, EVENT_ERROR_CHARACTERS_MAX)
    if is_retry(type_, reason):
        return RETRIED, line
    return str(type_), ": ".join(part for part in (reason, line) if part)
