"""Refuse options that do not exist, for enqueues, handlers, schedules and workers."""

from collections.abc import Collection, Mapping
from difflib import get_close_matches
from typing import Any

from holdfast.errors import ValidationError

_SEAL = "Run holdfast seal beside the worker."
GONE = {
    "ageing": "Raise the priority of a job that has waited too long with reprioritise.",
    "anchor_every": _SEAL,
    "anchors": _SEAL,
    "attempts": "Use attempts_max, an option of handlers and a field of policies.",
    "for_worker_for": "Give the job to any worker later: ledger.move(id, for_worker=None).",
    "lease": "Use lease_ttl, an option of handlers and a field of policies.",
    "seal": _SEAL,
}
"""Options that do not exist any more, with what to use instead."""


def check_options(what: str, given: Mapping[str, Any], known: Collection[str]) -> None:
    """Raise ValidationError for an option that `what` does not have. Its action says what to use instead, if it is gone, or
    lists the options that exist."""
    for name in given:
        if name not in known:
            instead = GONE.get(name)
            near = "" if instead else " or ".join(map(repr, get_close_matches(str(name), known)))
            refused = ValidationError(
                f"{what} has no option {name!r:.80}" + (f"; did you mean {near}?" if near else ""), field=what
            )
            refused.action = instead or f"The options of {what} are {', '.join(sorted(known))}."
            raise refused
