"""The commit pipeline of a remote ledger. A request becomes a request to the server, and its answers become records.

The verbs of the ledger check their arguments and make commands from them, here as on a store. Only what follows differs: a
store's pipeline runs the commands in a transaction, and this one sends them.
"""

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any

import msgspec

from holdfast.core import commands as c
from holdfast.core.access import matches_any
from holdfast.core.limits import PAGE_MAX
from holdfast.core.model import SYSTEM, Actor, Fence, Role
from holdfast.core.payloads import NO_BEAT
from holdfast.errors import Forbidden, HoldfastError, SignatureInvalid, ValidationError
from holdfast.ledger import metrics
from holdfast.ledger.public import Beat, Change, to_micros
from holdfast.ledger.requests import FoundJob, Request, Result
from holdfast.ledger.signing import Signer
from holdfast.remote import answers as a
from holdfast.remote import items
from holdfast.remote.refusals import StoreOnly
from holdfast.remote.transport import Transport
from holdfast.store.session import EnqueuedRow
from holdfast.watch.process import Metrics

PART_BYTES_MAX = 8_000_000
"""The most that one request of a batch carries, if the batch can be sent in parts."""


_ITEMS = a.having("answers", list[a.BatchItem])


class Identity:
    """Who the token says that its bearer is, and which other actors it may name."""

    def __init__(self, me: a.TokenFacts, fallback: str, incarnation: str) -> None:
        self._me = me
        self._incarnation = incarnation
        self.name = fallback if self._may_act_as(Role.CLIENT, fallback) else me.name
        """The name of the caller for verbs that are not given one."""

    def _may_act_as(self, role: Role, name: str) -> bool:
        return matches_any(self._me.act_as, f"{role.value}:{name}")

    def headers(self, actor: Actor) -> dict[str, str]:
        """Return the headers that name an actor.

        They are left out if the token's own name is meant. The server refuses any name that the token may not act as.
        """
        if actor.role is Role.WORKER:
            found = {"Holdfast-Incarnation": actor.incarnation or self._incarnation}
            is_own = (self._me.role, self._me.name) == ("worker", actor.name)
        else:
            found = {}
            is_own = actor.name == self._me.name
        role = Role.OPERATOR if actor.role is Role.SYSTEM else actor.role  # a server acts as the system for operators
        if actor != SYSTEM and (not is_own or self._may_act_as(role, actor.name)):
            found["Holdfast-Actor"] = f"{role.value}:{actor.name}"
        return found


class RemotePipeline(StoreOnly):
    """Sends requests to a server. It takes the place of the ledger's CommitPipeline."""

    def __init__(
        self, transport: Transport, identity: Identity, counters: Metrics, nonce: Callable[[], str], signer: Signer
    ) -> None:
        self._transport = transport
        self._identity = identity
        self._signer = signer
        self._metrics = counters
        self._nonce = nonce

    def submit(self, request: Request) -> Result:
        """Send a request with one command, or an enqueue. Return its answer as a store's pipeline returns it."""
        return self._counted(request, self._answers)

    def submit_many(self, request: Request) -> Result:
        """Send heartbeats or completions of many jobs. Each has its own answer."""
        return self._counted(request, self._answers_of_many)

    def submit_chosen(self, request: Request) -> Result:
        """Send the commands of an operator on many jobs in one request. Each has its own answer."""
        return self._counted(request, self._on_chosen)

    def _counted(self, request: Request, run: Callable[[Request], list[Any]]) -> Result:
        result = Result(request)
        try:
            result.answers = run(request)
        except HoldfastError as error:
            metrics.count_refusal(self._metrics, error)
            raise
        # The answer does not say whether it is a repeated one, nor how long jobs have waited.
        result.changed = request.verb in ("enqueue", "heartbeat", "replay")
        metrics.count_answers(self._metrics, result)
        return result

    claim = submit

    def submit_within(self, connection: Any, request: Request) -> Result:
        raise ValidationError("a remote ledger cannot use a connection of the caller's", field="connection")

    def call(self, method: str, path: str, answer: Any, *, actor: Actor, body: Any = None, **options: Any) -> Any:
        """Send a request that is not a command on a job."""
        try:
            return self._transport.call(method, path, answer, body=body, headers=self._identity.headers(actor), **options)
        except HoldfastError as error:
            metrics.count_refusal(self._metrics, error)
            raise

    def _answers(self, request: Request) -> list[Any]:
        match request.commands[0]:
            case c.Enqueue():
                return self._enqueue(request.commands)  # type: ignore[arg-type]
            case c.ClaimNext() as command:
                return [self._claim(command)]
            case c.Heartbeat() as command if command.request_id is None and command.expected_rev is None:
                return self._answers_of_many(request)
        [only] = request.commands
        return [self._on_job(only)]

    def _answers_of_many(self, request: Request) -> list[Any]:
        """Send the commands of each worker in a request of its own, and return the answers in the order of the commands."""
        commands: Sequence[Any] = request.commands
        answers: dict[int, Any] = {}
        places = sorted(range(len(commands)), key=lambda place: _holder(commands[place]))
        for _, group in groupby(places, key=lambda place: _holder(commands[place])):
            own = list(group)
            answers.update(zip(own, self._of_worker(request, [commands[place] for place in own]), strict=True))
        return [answers[place] for place in range(len(commands))]

    def _of_worker(self, request: Request, commands: Sequence[Any]) -> list[Any]:
        """Send commands of one worker. Those that have to be signed, or signed again, are signed and sent once more."""
        answers = self._sent_by(request, commands)
        again: dict[int, Any] = {}
        for place, answer in enumerate(answers):
            try:
                signed = self._signer.sign_again(commands[place], answer)
            except HoldfastError as error:
                answers[place] = error
            else:
                again |= {} if signed is None else {place: signed}
        if again:
            # If one of the others was accepted, the answers are kept under the key of the call.
            suffix = "" if len(again) == len(answers) else ".signed"
            renamed = [_with_suffix(command, suffix) for command in again.values()]
            answers_again = self._sent_by(request._replace(beats=()), renamed)
            for place, answer in zip(again, answers_again, strict=True):
                answers[place] = answer
        return answers

    def _sent_by(self, request: Request, commands: Sequence[Any]) -> list[Any]:
        match commands[0]:
            case c.Heartbeat():
                return self._beats(commands, wait=request.waits)
            case c.Settle():
                return self._settle(commands, request.beats)
        found = self._send(commands[0], "/v1/completions", _ITEMS, _completions(commands)).answers
        return [item.error or a.applied(item.done) for item in found]

    # One job

    def _on_job(self, command: Any) -> Any:
        """Send a command. If it has to be signed, or signed again, it is signed and sent once more."""
        try:
            return self._sent_on_job(command)
        except SignatureInvalid as refusal:
            signed = self._signer.sign_again(command, refusal)
            if signed is None:
                raise
        return self._sent_on_job(signed)

    def _sent_on_job(self, command: Any) -> Any:
        verb, body = items.ON_JOB[type(command)](command)
        path, rev = f"/v1/jobs/{command.job_id}/{verb}", command.expected_rev
        match command:
            case c.Heartbeat():
                return a.applied(self._send(command, path, a.having("beat", Beat), body, rev=rev).beat)
            case c.Start() | c.Complete():
                return a.applied(self._send(command, path, a.having("change", Change), body, rev=rev).change)
        return _job_of(command, self._send(command, path, a.FoundAnswer, body, rev=rev))

    def _send(self, command: Any, path: str, answer: Any, body: Any, *, rev: int | None = None, **options: Any) -> Any:
        _check_role(command)
        headers = self._identity.headers(_actor(command))
        if rev is not None:
            headers["If-Match"] = f'"{rev}"'
        key = command.request_id or self._nonce()
        return self._transport.call("POST", path, answer, body=body, headers=headers, key=key, **options)

    def check_gate(self, fence: Fence) -> Any:
        """Return the receipt of the holder, if it passes the gate. Nothing is changed."""
        headers = self._identity.headers(Actor(Role.WORKER, fence.worker, fence.incarnation))
        body = {"fence": items.fence_body(fence)}
        return self._transport.call(
            "POST", f"/v1/jobs/{fence.job_id}/gate", a.having("receipt", msgspec.Raw), body=body, headers=headers, changes=False
        )

    # Many jobs

    def _on_chosen(self, request: Request) -> list[Any]:
        """Send one verb for many jobs, each with the revision at which it was seen."""
        commands: Sequence[Any] = request.commands
        first = commands[0]
        _, options = items.ON_JOB[type(first)](first)
        if isinstance(first, c.Replay):
            options["again"] = first.again
        jobs = [items.without_none(id=command.job_id, rev=command.expected_rev) for command in commands]
        body = {"verb": request.verb, "jobs": jobs, **options}
        found = self._send(first, "/v1/batches", _ITEMS, body, query={"return": "jobs"}).answers
        return [item.error or _job_of(command, item) for command, item in zip(commands, found, strict=True)]

    def _enqueue(self, commands: Sequence[c.Enqueue]) -> list[Any]:
        """Create jobs. The record of a new one is folded from its command, so the answer need not have it.

        Jobs that depend on others, or may change others, are read: the answer depends on those.
        """
        whole = len(commands) <= PAGE_MAX and any(
            isinstance(command, c.EnqueueLinked) or command.on_duplicate != "keep" for command in commands
        )
        body, query = {"jobs": items.enqueue_items(commands)}, {"return": "jobs"} if whole else None
        found = self._send(commands[0], "/v1/jobs/batch", a.CreatedAnswer, body, query=query)
        existing = set(found.existing)
        if whole:
            return [FoundJob(a.record_of(job), place not in existing) for place, job in enumerate(found.jobs)]
        at = 0 if found.at is None else to_micros(found.at)
        return [
            FoundJob(self._job(id_), is_new=False) if place in existing else EnqueuedRow(id_, at, is_new=True)
            for place, id_ in enumerate(found.job_ids)
        ]

    def _job(self, job_id: int) -> Any:
        return a.record_of(self._transport.call("GET", f"/v1/jobs/{job_id}", a.FoundAnswer).job)

    def _claim(self, command: c.ClaimNext) -> list[Any]:
        body = items.without_none(
            queues=command.queues,
            kinds=command.kinds,
            limit=command.limit,
            start=command.start or None,
            labels=command.labels or None,
        )
        return [a.record_of(job) for job in self._send(command, "/v1/claims", a.PageAnswer, body).jobs]

    def _beats(self, commands: Sequence[c.Heartbeat], *, wait: bool) -> list[Any]:
        """Send heartbeats in one request. They have no key: a fresh heartbeat follows one that is lost."""
        plain = [place for place, command in enumerate(commands) if _is_plain(command)]
        others = [place for place, command in enumerate(commands) if not _is_plain(command)]
        body = {
            "fences": [items.fence_body(commands[place].fence) for place in plain],
            "beats": [items.beat_body(commands[place]) for place in others],
            "wait": wait,
        }
        headers = self._identity.headers(_actor(commands[0]))
        found = self._transport.call("POST", "/v1/heartbeats", _ITEMS, body=body, headers=headers, lane="beat").answers
        answers = dict(zip([*plain, *others], found, strict=True))
        return [item.error or a.applied(item.done) for _, item in sorted(answers.items())]

    def _settle(self, commands: Sequence[c.Complete], beats: Sequence[c.Heartbeat]) -> list[Any]:
        """Complete jobs in requests of a bounded size. All have the same key: no answer is kept under it."""
        answers: list[Any] = []
        ids = {command.job_id for command in commands}
        sent_beats = [items.beat_body(beat) for beat in beats if beat.job_id in ids]
        for part in _parts(commands):
            body = _completions(part) | {"settle": True, "beats": sent_beats}
            answers += [item.error for item in self._send(part[0], "/v1/completions", _ITEMS, body).answers]
            sent_beats = []
        return answers


def _job_of(command: Any, found: Any) -> Any:
    """Return the job of an answer, as the ledger's own pipeline answers it."""
    record = a.record_of(found.job)
    return FoundJob(record, found.is_new) if isinstance(command, c.Replay) else record


def _actor(command: Any) -> Actor:
    fence = getattr(command, "fence", None)
    return command.actor if fence is None else Actor(Role.WORKER, fence.worker, fence.incarnation)


def _with_suffix(command: Any, suffix: str) -> Any:
    """Return a completion with another key. Heartbeats have none, and the answers of `settle_many` are not kept."""
    if not suffix or type(command) is not c.Complete:
        return command
    return msgspec.structs.replace(command, request_id=f"{command.request_id}{suffix}")


def _is_plain(command: c.Heartbeat) -> bool:
    return command.beat == NO_BEAT and command.signed is None


def _check_role(command: Any) -> None:
    """Raise Forbidden for an actor that a server does not let act: it acts as the system only for verbs that are the system's."""
    by_system = isinstance(command, c.Requeue) or (isinstance(command, c.Stall | c.Resume) and command.fence is None)
    if by_system != (command.actor.role is Role.SYSTEM):
        raise Forbidden(f"a server does not do this for the role {command.actor.role.value}", verb=type(command).__name__)


def _holder(command: Any) -> tuple[str, str]:
    return command.fence.worker, command.fence.incarnation


def _completions(commands: Sequence[c.Complete]) -> dict[str, Any]:
    return {"completions": [items.completion_body(command) for command in commands]}


def _parts(commands: Sequence[c.Complete]) -> list[list[c.Complete]]:
    """Split completions so that each part fits into a request."""
    parts: list[list[c.Complete]] = []
    size = PART_BYTES_MAX
    for command in commands:
        if size + len(command.payload) > PART_BYTES_MAX:
            parts.append([])
            size = 0
        parts[-1].append(command)
        size += len(command.payload)
    return parts
