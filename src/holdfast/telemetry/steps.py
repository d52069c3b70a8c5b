"""One log line for each step of a job: started, succeeded, retried, failed, dead-lettered, stalled, and so on."""

import logging
from collections.abc import Mapping
from typing import Any

from holdfast.core.words import error_line

ERROR_CHARACTERS_MAX = 500


def note(
    log: logging.Logger, level: int, event: str, fields: Mapping[str, Any], said: str, *, error: Any = None, **facts: Any
) -> None:
    """Log a step of the job that `fields` are about. `event` names the step; `error` is one as the ledger keeps it.

    The error's traceback is the record's `exc_text`, so every formatter shows it, also where the error was raised in another
    process.
    """
    if not log.isEnabledFor(level):
        return
    text = f"job {fields['job_id']} {said}"
    if error is not None:
        facts["error"] = error_line(error, ERROR_CHARACTERS_MAX)
        text += f": {facts['error']}"
    known = {name: value for name, value in facts.items() if value is not None}
    record = log.makeRecord(log.name, level, __file__, 0, "%s", (text,), None, "note", {**fields, "event": event, **known})
    trace = error.get("traceback") if isinstance(error, dict) else None
    record.exc_text = trace.rstrip() if isinstance(trace, str) else None
    log.handle(record)
