"""Requests to the commit pipeline, their results, and the stored answers of repeated requests.

A request id makes a request safe to send again: the answer is stored with the change, and a repetition gets the stored answer.
"""

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from holdfast import errors
from holdfast.core.audit import fold
from holdfast.core.commands import Command, Heartbeat
from holdfast.core.decide import Decision
from holdfast.core.model import HELD, SIGNED_SEPARATOR, Actor, JobRecord, Phase, Status
from holdfast.errors import HoldfastError, IdempotencyConflict, Unavailable
from holdfast.ledger.signing import TransactionSigner
from holdfast.store.base import Contention
from holdfast.store.events import EventFilter
from holdfast.store.requests import StoredRequest
from holdfast.store.rows import ClaimedJobs, row_id_and_rev
from holdfast.store.session import AppliedCommand, EnqueuedRow, Session


class Request(NamedTuple):
    """Commands of one verb from one caller. A request never changes."""

    verb: str
    commands: Sequence[Command]
    repeat: bool = False
    """The caller chose the request id, so the request may have been answered before."""
    keep: bool = False
    """Keep the answer, for a repetition of the request."""
    body_hash: bytes = b""
    chunk: int = 0
    """The number of this part of a long batch. Each part is answered, and kept, by itself."""
    waits: bool = True
    """Wait some seconds for rows that another transaction has locked. A caller that retries by itself does not wait here."""
    beats: Sequence[Heartbeat] = ()
    """Heartbeats to record before the commands, in the same transaction. They have no answers: a refused one is dropped."""


class Result:
    """The result of one run of a request. Each run makes a new one, so that a run that is rolled back leaves nothing behind."""

    __slots__ = ("answers", "changed", "locked", "outcomes", "queues", "repeated", "request")

    def __init__(self, request: Request) -> None:
        self.request = request
        self.answers: list[Any] = [None] * len(request.commands)
        """One for each command: a value, or an error."""
        self.changed = False
        """Something was written."""
        self.locked = False
        """Some commands were not run, because another transaction has locked a row that they need."""
        self.repeated = False
        """The answer, or a part of it, is that of an earlier request with the same id."""
        self.outcomes: list[Decision] = []
        """The decisions about commands that were decided one by one."""
        self.queues: set[str] = set()
        """Queues that have new work, now or later. Idle workers there are woken."""

    def note(self, outcomes: Iterable[Decision]) -> None:
        """Add decisions about jobs that no command named."""
        for outcome in outcomes:
            self.outcomes.append(outcome)
            if outcome.job.status is Status.QUEUED:
                self.queues.add(outcome.job.queue)


class RepeatCount(threading.local):
    """How many calls of this thread were answered as repetitions of an earlier request."""

    count = 0


repeats = RepeatCount()


class Item(NamedTuple):
    """One command, and its place in the result."""

    result: Result
    place: int
    command: Any

    def answer(self, value: Any) -> None:
        self.result.answers[self.place] = value


Runner = Callable[[Session, Sequence[Item], TransactionSigner], None]
"""Runs all commands of one type, and answers them."""


def change_of(job: JobRecord) -> AppliedCommand:
    return AppliedCommand(job.id, job.rev, job.status, job.updated_at, job.lease_expires_at, job.phase is Phase.ABORTING)


# Stored answers


class FoundJob(NamedTuple):
    """The answer of an enqueue or a replay: a job, and whether it is new."""

    job: JobRecord
    is_new: bool


class KeptItem(msgspec.Struct, frozen=True, omit_defaults=True):
    """A kept answer to one command: a job at a revision, which is rebuilt from its events, or a refusal within a batch."""

    job_id: int = 0
    rev: int = 0
    is_new: bool = True
    code: str = ""
    message: str = ""

    def error(self) -> errors.HoldfastError | None:
        return _BY_CODE[self.code](self.message) if self.code else None


class KeptAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """A kept answer. New or changed jobs that are all at one revision are only listed: that is shorter, and made faster."""

    items: tuple[KeptItem, ...] = ()
    token: str | None = None
    ids: tuple[int, ...] = ()
    rev: int = 0

    def all_items(self) -> Sequence[KeptItem]:
        return self.items or [KeptItem(job_id, self.rev) for job_id in self.ids]


def _leaves(kind: type[errors.HoldfastError]) -> list[type[errors.HoldfastError]]:
    return [kind, *(leaf for sub in kind.__subclasses__() for leaf in _leaves(sub))]


_BY_CODE = {kind.code: kind for kind in reversed(_leaves(errors.HoldfastError))}
"""The error class nearest to the root for each code. Subclasses further down may need more than a message."""
_decoder = msgspec.json.Decoder(KeptAnswer)


EMPTY_ANSWER = msgspec.json.encode(KeptAnswer())


def decode_answer(body: bytes) -> KeptAnswer:
    return _decoder.decode(body)


def encode_answer(result: Result) -> bytes:
    verb, answers = result.request.verb, result.answers
    found = answers[0] if verb == "claim" else answers
    token = answers[0].token if verb == "claim_job" else getattr(result.request.commands[0], "token", None)
    if isinstance(found, ClaimedJobs):
        # The records of these jobs are made only if the caller reads them.
        return _encode_pairs(list(map(row_id_and_rev, found.rows)), token)
    kinds = set(map(type, found))
    if kinds == {EnqueuedRow} and verb == "enqueue":
        return _encode_pairs([(row.job_id, 1) for row in found], token)
    if kinds == {AppliedCommand}:
        return _encode_pairs([(change.job_id, change.rev) for change in found], token)
    return msgspec.json.encode(KeptAnswer(tuple(map(_kept_item, found)), token))


def _encode_pairs(pairs: Sequence[tuple[int, int]], token: str | None) -> bytes:
    """Encode the ids and revisions of jobs."""
    if len({rev for _, rev in pairs}) == 1:
        return msgspec.json.encode(KeptAnswer((), token, tuple(job_id for job_id, _ in pairs), pairs[0][1]))
    return msgspec.json.encode(KeptAnswer(tuple(KeptItem(*pair) for pair in pairs), token))


def _kept_item(answer: Any) -> KeptItem:
    match answer:
        case EnqueuedRow():
            return KeptItem(answer.job_id, 1)
        case FoundJob():
            return KeptItem(answer.job.id, answer.job.rev, answer.is_new)
        case AppliedCommand():
            return KeptItem(answer.job_id, answer.rev)
        case JobRecord():
            return KeptItem(answer.id, answer.rev)
        case errors.HoldfastError():
            return KeptItem(code=answer.code, message=answer.message)
    raise TypeError(f"an answer of type {type(answer).__name__}")


def _key(request: Request) -> tuple[str, str]:
    command = request.commands[0]
    assert command.request_id is not None
    # A caller's own id has no control character, so it cannot equal this one.
    return command.actor.name, f"{command.request_id}\x1f{request.chunk}" if request.chunk else command.request_id


def answer_repeats(session: Session, results: Sequence[Result]) -> tuple[list[Result], list[Result]]:
    """Answer requests that were answered before. Return those to run now, and those that repeat one of them.

    A request whose id another transaction has taken is refused as locked.
    """
    keys = [_key(result.request) for result in results if result.request.repeat]
    if not keys:
        return list(results), []
    taken = session.take_requests(keys)
    known = session.find_requests(keys)
    to_run: list[Result] = []
    repeats: list[Result] = []
    seen: set[tuple[str, str]] = set()
    for result in results:
        if not result.request.repeat:
            to_run.append(result)
            continue
        key = _key(result.request)
        if key in taken:
            result.answers = [_in_use(result.request.commands[0].request_id)] * len(result.answers)
            result.locked = True
        elif key in known:
            result.answers = _answer_again(session, result.request, known[key])
            result.repeated = not isinstance(result.answers[0], IdempotencyConflict)
        elif key in seen:
            repeats.append(result)
        else:
            to_run.append(result)
            seen.add(key)
    return to_run, repeats


def is_repeated(session: Session, who: Actor, request_id: str, verb: str, body_hash: bytes) -> bool:
    """Return whether this request was made before. If not, keep it."""
    if kept_answer(session, who, request_id, verb, body_hash) is not None:
        return True
    session.keep_requests([StoredRequest(who.name, request_id, verb, body_hash, EMPTY_ANSWER)])
    return False


def kept_answer(session: Session, who: Actor, request_id: str, verb: str, body_hash: bytes) -> bytes | None:
    """Return the kept answer of this request, or None. Raise IdempotencyConflict if the id was used for another request."""
    key = (who.name, request_id)
    if session.take_requests([key]):
        raise Contention(_in_use(request_id).message)
    kept = session.find_requests([key]).get(key)
    if kept is not None and (kept.verb, kept.body_hash) != (verb, body_hash):
        raise _conflict(kept)
    return None if kept is None else kept.answer


def _in_use(request_id: str | None) -> Unavailable:
    refused = Unavailable(f"request id {request_id!r} is in use by another open transaction", locked=True, request_id=request_id)
    refused.action = "Send it again once that transaction has ended. It may be one that this program has left open itself."
    return refused


def _conflict(kept: StoredRequest) -> IdempotencyConflict:
    return IdempotencyConflict(
        f"request id {kept.request_id!r} was used by {kept.actor!r} for another {kept.verb}",
        request_id=kept.request_id,
        actor=kept.actor,
    )


def _answer_again(session: Session, request: Request, kept: StoredRequest) -> list[Any]:
    """Return the answers of the first request. Nothing is changed."""
    if (kept.verb, kept.body_hash) != (request.verb, request.body_hash):
        return [_conflict(kept)] * len(request.commands)
    saved = decode_answer(kept.answer)
    if request.verb == "claim":
        found = session.load([item.job_id for item in saved.all_items()], lock=False)
        jobs = [found[item.job_id] for item in saved.all_items() if item.job_id in found]
        return [[job for job in jobs if job.status in HELD and claim_token(job) == saved.token]]
    return [item.error() or _job_at(session, request.verb, item, saved.token) for item in saved.all_items()]


def claim_token(job: JobRecord) -> str | None:
    """Return the part of a job's token that was drawn for its claim."""
    return None if job.token is None else job.token.partition(SIGNED_SEPARATOR)[0]


def _job_at(session: Session, verb: str, item: KeptItem, token: str | None) -> Any:
    """Return the job as it was right after the change that was answered. A claim by id has its token, also if it is lost."""
    job = fold(session.events(EventFilter(job_id=item.job_id, rev_max=item.rev, limit=1_000_000)))
    if job is None:
        return IdempotencyConflict(f"job {item.job_id} has been pruned since", job_id=item.job_id)
    if verb in ("enqueue", "replay"):
        return FoundJob(job, item.is_new)
    if verb in ("start", "heartbeat", "complete"):
        return change_of(job)
    return job if token is None else msgspec.structs.replace(job, token=token)


def keep_answers(session: Session, results: Iterable[Result]) -> None:
    """Save the answers of requests with `keep`."""
    rows = []
    for result in results:
        request = result.request
        if request.keep and not result.locked and any(map(_is_kept, result.answers)):
            actor, request_id = _key(request)
            rows.append(StoredRequest(actor, request_id, request.verb, request.body_hash, encode_answer(result)))
    if rows:
        session.keep_requests(rows)


def is_locked(answer: Any) -> bool:
    """Return whether a command was not run because another transaction has locked a row that it needs."""
    return isinstance(answer, Unavailable) and answer.locked


def _is_kept(answer: Any) -> bool:
    """Return whether to keep an answer. Refusals, empty lists and lists of refusals are not kept."""
    if isinstance(answer, ClaimedJobs):
        return len(answer) > 0
    return any(map(_is_kept, answer)) if isinstance(answer, list) else not isinstance(answer, HoldfastError)
