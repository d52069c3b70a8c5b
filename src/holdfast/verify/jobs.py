"""The jobs of a file: each one's events checked as they come, its row in the end. What nobody works on is kept small."""

from collections.abc import Iterator
from hashlib import sha256

import msgspec

from holdfast.core.audit import Audit, Violation
from holdfast.core.model import HELD, Event, Job, Status
from holdfast.core.proof.book import Book
from holdfast.core.vouching import Signatures

_BODIES = ("args", "last_error", "result", "checkpoint", "override")
_BODY_BYTES_MAX = 64
_PARKED_BYTES_MAX = 65_536
"""The largest that a ledger writes, with a thousand dependencies, has about 25,000 bytes."""
_AWAKE = HELD | {Status.STALLED}
"""What is signed in these follows from what was signed before."""
_MARK = b"\xff"
"""No text holds this byte: what is marked with it cannot have been written by anybody."""
_BAD = (msgspec.MsgspecError, LookupError, ValueError, TypeError, AttributeError, AssertionError, ArithmeticError)


class _Parked(Job, frozen=True, array_like=True):
    """A job as a few hundred bytes."""


_encode = msgspec.msgpack.Encoder().encode
_decoder: msgspec.msgpack.Decoder[_Parked] = msgspec.msgpack.Decoder(_Parked)


class _Resting:
    """A job that nobody holds: it may be claimed, or get a note, and its row will come."""

    __slots__ = ("blurred", "body", "policy")

    def __init__(self, audit: Audit, job: Job) -> None:
        self.blurred = audit.blurred
        self.policy = job.policy
        self.body = _encode(_Parked(*msgspec.structs.astuple(msgspec.structs.replace(job, policy=None))))

    def job(self) -> Job:
        return msgspec.structs.replace(Job(*msgspec.structs.astuple(_decoder.decode(self.body))), policy=self.policy)


class Jobs:
    """All jobs that have had events and no row yet."""

    def __init__(self, ledger_id: str, book: Book) -> None:
        self._ledger_id = ledger_id
        self._book = book
        self._found: dict[int, Audit | _Resting] = {}
        self.count = 0

    def __len__(self) -> int:
        return len(self._found)

    def __iter__(self) -> Iterator[int]:
        return iter(self._found)

    def _signatures(self) -> Signatures:
        return Signatures(self._book, self._ledger_id)

    def correlation(self, job_id: int) -> tuple[str, str | None]:
        """What a job's first event said that its later ones do not repeat."""
        found = self._found.get(job_id)
        job = None if found is None else found.job() if isinstance(found, _Resting) else found.job
        return ("", None) if job is None else (job.correlation_id, job.trace_id)

    def feed(self, event: Event) -> list[Violation]:
        """What is wrong with the next event of its job. Nothing more is said of a job that cannot be folded on."""
        found = self._found.get(event.job_id)
        if found is None:
            self.count += 1
            found = self._found[event.job_id] = Audit(self._signatures())
        elif isinstance(found, _Resting):
            found = self._found[event.job_id] = Audit(self._signatures(), found.job(), blurred=found.blurred)
        if found.ended:
            return []
        try:
            wrong = found.feed(event)
        except (*_BAD, RecursionError):
            found.ended = True
            return [Violation(event.job_id, event.rev, "unreadable", "it has a value that no ledger writes")]
        job = found.job
        if job is not None and not found.ended:
            found.job = job = _shrunk(job)
            if job.status not in _AWAKE:
                resting = _Resting(found, job)
                if len(resting.body) > _PARKED_BYTES_MAX:
                    # It is read and written again with each event.
                    found.ended = True
                    return [*wrong, Violation(event.job_id, event.rev, "unreadable", "a job larger than any ledger writes")]
                self._found[event.job_id] = resting
        return wrong

    def drop(self, job_id: int) -> None:
        """Nothing can be compared with its row."""
        self._found.pop(job_id, None)

    def close(self, row: Job) -> list[Violation] | None:
        """What is wrong with a row, as what its job's events come to; None where they come to nothing. The job is done with."""
        found = self._found.pop(row.id, None)
        if found is None:
            return [Violation(row.id, row.rev, "row", "a row without events")]
        audit = Audit(None, found.job(), blurred=found.blurred) if isinstance(found, _Resting) else found
        return None if audit.ended else audit.check_row(_shrunk(row))


def _shrunk(job: Job) -> Job:
    """`job` with the hashes of what is long in it: enough to compare."""
    long = {name: body for name in _BODIES if (body := getattr(job, name)) is not None and len(body) > _BODY_BYTES_MAX}
    if not long:
        return job
    return msgspec.structs.replace(job, **{name: _MARK + sha256(body).digest() for name, body in long.items()})
