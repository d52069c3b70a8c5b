"""Times, errors and command lines in explanations."""

import shlex
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from holdfast.core.explain.model import NextStep, QueuePause, Remedy
from holdfast.core.formatting import format_error
from holdfast.core.limits import TIME_US_MAX
from holdfast.core.model import EventType, JobRecord, Micros, StallReason
from holdfast.core.policy import must_be_signed
from holdfast.core.text import format_duration, format_time_of_day, pluralize

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ERROR_CHARACTERS_MAX = 200


def to_datetime(at: Micros) -> datetime:
    return _EPOCH + timedelta(microseconds=min(at, TIME_US_MAX))


def format_clock(at: Micros, now: Micros) -> str:
    return format_time_of_day(to_datetime(at), to_datetime(now))


def format_when(at: Micros, now: Micros) -> str:
    """Return `in 12 s (14:03:20Z)` or `12 s ago (14:03:20Z)`."""
    if at > now:
        return f"in {format_duration(at - now)} ({format_clock(at, now)})"
    return f"{format_duration(now - at)} ago ({format_clock(at, now)})"


def format_until(at: Micros, now: Micros) -> str:
    """Return `for another 12 s (until 14:03:20Z)`."""
    return f"for another {format_duration(at - now)} (until {format_clock(at, now)})"


def format_pause(pause: QueuePause, now: Micros) -> str:
    """Return `paused 2 h ago (12:03:20Z) by ada: reindexing`."""
    by = "" if pause.by is None else f" by {pause.by}"
    return f"paused {format_when(pause.at, now)}{by}" + ("" if pause.reason is None else f": {pause.reason}")


def decode_error(error: bytes | None) -> Any:
    return None if error is None else msgspec.json.decode(error)


def format_error_json(error: bytes | None) -> str:
    """Return an encoded error in one line."""
    return format_error(decode_error(error), ERROR_CHARACTERS_MAX)


_STALL_TEXTS: dict[str | None, str] = {
    StallReason.NO_HEARTBEAT: "its holder fell silent",
    StallReason.LEASE_EXPIRED: "its lease ran out, or it was never started",
    StallReason.NO_PROGRESS: "it made no progress",
    StallReason.WORKER_ERROR: "its holder could not go on",
    StallReason.TRANSIENT_ERROR: "it failed with a transient error",
    StallReason.RELEASED: "its holder released it",
    StallReason.OPERATOR_QUEUE_TIMEOUT: "no operator came in time",
}


def format_stall(reason: str | None) -> str:
    return f"{_STALL_TEXTS[reason]} ({reason})"


def format_bytes(number: int) -> str:
    """Return a number of bytes in a suitable unit: `900 bytes`, `12.5 MiB`."""
    for unit, bits in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if number >= 1 << bits:
            return f"{number / (1 << bits):,.1f} {unit}"
    return pluralize(number, "byte")


def next_step(what: str, at: Micros | None, by: str) -> NextStep:
    return NextStep(what, None if at is None else to_datetime(at), by)


def quote_argument(name: str) -> str:
    """Return a name quoted for a command line. A name that begins with a dash is put after `--`."""
    return f"-- {shlex.quote(name)}" if name.startswith("-") else shlex.quote(name)


def remedy(does: str, *arguments: object) -> Remedy:
    """Return the remedy `holdfast ARGUMENTS`. User-given names need `quote_argument` instead, as they may begin with a dash."""
    return Remedy(shlex.join(["holdfast", *map(str, arguments)]), does)


def unpause(queue: str) -> Remedy:
    return Remedy(f"holdfast queue unpause {quote_argument(queue)}", f"allows claims from {queue} again")


def run_a_worker(queue: str, labels: Iterable[str] = (), name: str = "") -> Remedy:
    """Return the command that starts a worker. MODULE:APP is a placeholder, because the ledger does not have the app's name."""
    named = f" --name={shlex.quote(name)}" if name else ""
    labelled = "".join(f" --label={shlex.quote(label)}" for label in labels)
    return Remedy(
        f"holdfast worker run MODULE:APP --queues {shlex.quote(queue)}{named}{labelled}",
        "runs the handlers of an app that serves it",
    )


def move(job: JobRecord, queue: str) -> Remedy:
    does = f"puts it into {queue}, where its kind is served" + _key_hint(job, EventType.MOVED)
    return Remedy(f"holdfast job move {job.id} --queue {shlex.quote(queue)}", does)


def let_any_worker(job: JobRecord) -> Remedy:
    does = "lets any worker have it" + _key_hint(job, EventType.MOVED)
    return Remedy(f"holdfast job move {job.id} --any-worker", does)


def start_as_agent(job: JobRecord) -> Remedy:
    return Remedy(f"holdfast task start {job.id} --agent NAME", "starts it as an agent")


SWEEP = Remedy("holdfast sweep", "does everything that is due now")


def assist(job: JobRecord) -> Remedy:
    return remedy("records that an operator helps" + _key_hint(job, EventType.ASSIST_STARTED), "job", "assist", job.id)


def cancel(job: JobRecord) -> Remedy:
    does = "ends it; a holder is asked to stop"
    return remedy(does + _key_hint(job, EventType.CANCELLED), "job", "cancel", job.id)


def cancel_hard(job: JobRecord) -> Remedy:
    does = "ends it at once: its holder's writes are refused, and its next heartbeat stops the handler"
    return remedy(does + _key_hint(job, EventType.CANCELLED), "job", "cancel", job.id, "--hard")


def discard(job: JobRecord) -> Remedy:
    does = "marks it as needing no further action"
    return remedy(does + _key_hint(job, EventType.DISCARDED), "dlq", "discard", job.id)


def _key_hint(job: JobRecord, makes: EventType) -> str:
    return "; needs an operator's key, by --key or HOLDFAST_KEYS" if must_be_signed(job.policy, makes) else ""


def format_hidden(count: int) -> str:
    """Return how jobs of queues that the reader may not see are mentioned."""
    return "a job of a queue that you may not see" if count == 1 else f"{count:,} jobs of queues that you may not see"
