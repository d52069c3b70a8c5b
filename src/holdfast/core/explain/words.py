"""Times, errors and command lines as people read and type them."""

import shlex
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from holdfast.core.explain.shapes import NextStep, Pause, Remedy
from holdfast.core.limits import TIME_US_MAX
from holdfast.core.model import EventType, Job, Micros, StallReason
from holdfast.core.signing import owes
from holdfast.core.words import error_line

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UNITS = (("d", 86_400_000_000), ("h", 3_600_000_000), ("min", 60_000_000))
_SECOND_US = 1_000_000
ERROR_CHARACTERS_MAX = 200


def moment(at: Micros) -> datetime:
    return _EPOCH + timedelta(microseconds=min(at, TIME_US_MAX))


def span(us: Micros) -> str:
    """A length of time, in the largest unit that tells enough: `12 s`, `3 min`, `2 h`."""
    for unit, size in _UNITS:
        if us >= 2 * size:
            return f"{us / size:.0f} {unit}"
    return f"{us / _SECOND_US:.1f}".rstrip("0").rstrip(".") + " s" if 0 < us < 10 * _SECOND_US else f"{us // _SECOND_US} s"


def clock(at: Micros, now: Micros) -> str:
    """The time of day; with its date unless that is today's."""
    there, here = moment(at), moment(now)
    return f"{there:%H:%M:%S}Z" if there.date() == here.date() else f"{there:%Y-%m-%d %H:%M:%S}Z"


def when(at: Micros, now: Micros) -> str:
    """`in 12 s (14:03:20Z)`, `12 s ago (14:03:20Z)`."""
    if at > now:
        return f"in {span(at - now)} ({clock(at, now)})"
    return f"{span(now - at)} ago ({clock(at, now)})"


def until(at: Micros, now: Micros) -> str:
    """`for another 12 s (until 14:03:20Z)`."""
    return f"for another {span(at - now)} (until {clock(at, now)})"


def paused(pause: Pause, now: Micros) -> str:
    """`paused 2 h ago (12:03:20Z) by ada: reindexing`."""
    by = "" if pause.by is None else f" by {pause.by}"
    return f"paused {when(pause.at, now)}{by}" + ("" if pause.reason is None else f": {pause.reason}")


def decoded(error: bytes | None) -> Any:
    return None if error is None else msgspec.json.decode(error)


def told(error: bytes | None) -> str:
    """An error in one line."""
    return error_line(decoded(error), ERROR_CHARACTERS_MAX)


_STALLS: dict[str | None, str] = {
    StallReason.NO_HEARTBEAT: "its holder fell silent",
    StallReason.LEASE_EXPIRED: "its lease ran out, or it was never started",
    StallReason.NO_PROGRESS: "it made no progress",
    StallReason.WORKER_ERROR: "its holder could not go on",
    StallReason.TRANSIENT_ERROR: "it failed for the moment",
    StallReason.RELEASED: "it was handed back",
    StallReason.OPERATOR_QUEUE_TIMEOUT: "no operator came in time",
}


def stalled(reason: str | None) -> str:
    return f"{_STALLS[reason]} ({reason})"


def count(number: int, noun: str, several: str | None = None) -> str:
    return f"{number:,} {noun if number == 1 else several or noun + 's'}"


def size(number: int) -> str:
    """A number of bytes, in the largest unit that tells enough: `900 bytes`, `12.5 MiB`."""
    for unit, bits in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if number >= 1 << bits:
            return f"{number / (1 << bits):,.1f} {unit}"
    return count(number, "byte")


def step(what: str, at: Micros | None, by: str) -> NextStep:
    return NextStep(what, None if at is None else moment(at), by)


def typed(name: str) -> str:
    """A name as an argument of a command; those after `--` may begin with a dash."""
    return f"-- {shlex.quote(name)}" if name.startswith("-") else shlex.quote(name)


def remedy(does: str, *arguments: object) -> Remedy:
    """A text among the arguments is a word of the command, not a name."""
    return Remedy(shlex.join(["holdfast", *map(str, arguments)]), does)


def unpause(queue: str) -> Remedy:
    return Remedy(f"holdfast queue unpause {typed(queue)}", f"lets {queue} be claimed from again")


def run_a_worker(queue: str) -> Remedy:
    """Which app has the handler is not in the ledger."""
    return Remedy(f"holdfast worker run MODULE:APP --queues {shlex.quote(queue)}", "runs the handlers of an app that serves it")


def move(job: Job, queue: str) -> Remedy:
    does = f"puts it into {queue}, where its kind is served" + _by_key(job, EventType.MOVED)
    return Remedy(f"holdfast job move {job.id} --queue {shlex.quote(queue)}", does)


def take_it_up(job: Job) -> Remedy:
    return Remedy(f"holdfast task start {job.id} --agent NAME", "takes it up, as an agent")


SWEEP = Remedy("holdfast sweep", "does at once whatever is due")


def assist(job: Job) -> Remedy:
    return remedy("says that an operator helps" + _by_key(job, EventType.ASSIST_STARTED), "job", "assist", job.id)


def cancel(job: Job) -> Remedy:
    does = "ends it; a holder is asked to stop"
    return remedy(does + _by_key(job, EventType.CANCELLED), "job", "cancel", job.id)


def cancel_hard(job: Job) -> Remedy:
    does = "ends it at once: what its holder writes is refused, and the handler is told with its next heartbeat"
    return remedy(does + _by_key(job, EventType.CANCELLED), "job", "cancel", job.id, "--hard")


def discard(job: Job) -> Remedy:
    does = "notes that nobody needs to look at it"
    return remedy(does + _by_key(job, EventType.DISCARDED), "dlq", "discard", job.id)


def _by_key(job: Job, makes: EventType) -> str:
    return "; needs an operator's key, by --key or HOLDFAST_KEYS" if owes(job.policy, makes) else ""
