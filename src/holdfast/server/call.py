"""One request on its way to the ledger: who calls, what was sent, and what the handler answers."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec

from holdfast.agent import Brief, TaskDetails
from holdfast.core import limits
from holdfast.core.access import ANY
from holdfast.core.explain.model import WhyNotRunning
from holdfast.core.fence_tokens import is_issued_to
from holdfast.core.groups import unknown_group
from holdfast.core.model import Actor, Fence, Role
from holdfast.errors import Forbidden, HoldfastError, NotFound, ValidationError
from holdfast.ledger import GroupRecord, Job, Ledger, ScheduleRecord, SignedFence
from holdfast.ledger.requests import repeats
from holdfast.ledger.verbs.explaining import waiting_to
from holdfast.proof.envelopes import read_parts
from holdfast.server.principal import Principal
from holdfast.server.redact import Redaction
from holdfast.shapes import JobView, job_view
from holdfast.telemetry.tracing import is_loaded

R = TypeVar("R", bound=Brief | TaskDetails)
T = TypeVar("T")
N = TypeVar("N", GroupRecord, ScheduleRecord)

JSON_TYPE = "application/json"


NOT_ISSUED = "-"
"""A token that no fence has."""
VISIBLE_READS_MAX = 100
"""Reads for one page of what a caller may see."""
SENT = object()
"""The body of a reply that was sent already."""


class Reply(NamedTuple):
    """An answer with another status than the route's own, or with headers."""

    body: Any
    status: int | None = None
    headers: dict[str, str] = {}  # noqa: RUF012 - never changed
    cookies: tuple[str, ...] = ()
    """The values of Set-Cookie headers."""


class Call:
    """What a handler gets. Its attributes are checked; the ledger checks the values."""

    __slots__ = (
        "_actor",
        "_issued",
        "body",
        "exchange",
        "expected_rev",
        "incarnation",
        "is_repeated",
        "last_event_id",
        "ledger",
        "parameters",
        "principal",
        "query",
        "redaction",
        "request_id",
        "server",
        "traceparent",
    )

    def __init__(self, ledger: Ledger, principal: Principal) -> None:
        self.ledger = ledger
        self.principal = principal
        self.parameters: dict[str, str] = {}
        self.query: Any = None
        self.body: Any = None
        self.request_id: str | None = None
        self.expected_rev: int | None = None
        self.is_repeated = False
        """The ledger has answered this request before. Set by `run`."""
        self.incarnation = ""
        """The header Holdfast-Incarnation, or the default."""
        self.traceparent: str | None = None
        self.last_event_id: str | None = None
        self.redaction: Redaction | None = None
        """What this caller may not read; None if it may read all."""
        self.exchange: Any = None
        self.server: Any = None
        """The shared state of the server, for the few handlers that wait or stream."""
        self._actor: Actor | None = None
        self._issued = ""
        """The token that was checked last."""

    def run(self, work: Callable[[], T]) -> T:
        """Call the ledger, in the thread of the caller. Note whether its answer is a repeated one."""
        before = repeats.count
        try:
            answer = work()
        except HoldfastError as refusal:
            raise self.shown(refusal) from None
        self.is_repeated = repeats.count > before
        return answer

    def shown(self, refusal: HoldfastError) -> HoldfastError:
        """Return a refusal as the caller may see it: a job of another queue does not exist."""
        job_id = refusal.context.get("job_id")
        if not self.principal.sees_all and isinstance(job_id, int):
            try:
                self.visible_job(job_id)
            except NotFound as missing:
                return missing
        return refusal

    @property
    def is_traced(self) -> bool:
        """Whether what this call does belongs to a trace."""
        return self.traceparent is not None or is_loaded()

    # Who

    def act_as(self, actor: Actor | None) -> None:
        self._actor = actor

    @property
    def actor(self) -> Actor:
        """The actor of what this call does."""
        if self._actor is None:
            raise Forbidden("a reader cannot change anything", allowed=["client", "operator"])
        return self._actor

    @property
    def worker(self) -> Actor:
        """The worker that calls. Only a worker claims and holds jobs."""
        actor = self.actor
        if actor.role is not Role.WORKER:
            raise Forbidden(
                "only a worker can claim and hold jobs",
                allowed=["worker"],
                action="Use a token with the role worker, or act as one: Holdfast-Actor: worker:NAME#INCARNATION.",
            )
        return actor

    def held(self) -> Fence:
        """Return the fence of a body on the job of the path, with its proof if it has one."""
        return self.fence(self.body.fence, self.job_id, self.body.proof)

    def fence(self, given: "FenceGiven", job_id: int | None = None, proof: "ProofGiven | None" = None) -> Fence:
        """Return the fence that the caller sent, which has to be one of its own."""
        worker = self.worker
        if job_id is not None and given.job_id not in (None, job_id):
            raise ValidationError(f"the fence is of job {given.job_id}, not of job {job_id}", field="fence")
        found = job_id if given.job_id is None else given.job_id
        if found is None:
            raise ValidationError("the fence has no job_id", field="fence")
        if given.worker not in (None, worker.name) or given.incarnation not in (None, worker.incarnation):
            raise Forbidden(f"this fence was not issued to {worker.name}#{worker.incarnation}", holder=given.worker)
        token = self._own_token(given.token, worker.name)
        if proof is None:
            return Fence(found, given.attempt, token, worker.name, worker.incarnation)
        envelope = read_parts(proof.statement.encode(), proof.key_id, proof.signature)
        return SignedFence(found, given.attempt, token, worker.name, worker.incarnation, envelope=envelope)

    def _own_token(self, token: str, worker: str) -> str:
        """Return the token of a fence. One that was issued to another worker becomes a wrong one: the ledger refuses it."""
        if token != self._issued:  # the jobs of one claim have the same
            if token and not is_issued_to(worker, token):
                return NOT_ISSUED
            self._issued = token
        return token

    # What

    @property
    def job_id(self) -> int:
        text = self.parameters["job_id"]
        if text.isascii() and text.isdigit() and len(text) <= len(str(limits.JOB_ID_MAX)):
            found = int(text)
            if 1 <= found <= limits.JOB_ID_MAX:
                return found
        raise NotFound("there is no such job", action="A job's id is a number.")

    def see_queue(self, queue: str) -> None:
        """Raise Forbidden if the caller may not use this queue."""
        if not self.principal.sees(queue):
            raise Forbidden(f"this token does not cover the queue {queue!r:.80}", allowed=list(self.principal.queues))

    def see_dependencies(self, depends_on: Sequence[int | str] | None) -> None:
        """Raise NotFound if a new job would wait for a job that the caller may not see. A text names a job of the same call."""
        if depends_on and not self.principal.sees_all:
            limits.check_count("depends_on", len(depends_on), limits.DEPENDENCIES_MAX)
            for job_id in depends_on:
                if isinstance(job_id, int):
                    self.visible_job(job_id)

    def sees_group(self, group: GroupRecord) -> bool:
        """Return whether the caller may see a group: it may use all queues, or those of all follow-up jobs, at least one."""
        made = [item["queue"] for item in (group.then, group.on_dead) if item is not None]
        return self.principal.sees_all or (bool(made) and all(map(self.principal.sees, made)))

    def see_group(self, name: str | None) -> None:
        """Raise NotFound if a new job would join a group that the caller may not see."""
        if name is not None and not self.principal.sees_all:
            self.visible_group(name)

    def visible_group(self, name: str) -> GroupRecord:
        """Return a group that the caller may see. Any other does not exist for it."""
        found = self.ledger.get_group(name)
        if not self.sees_group(found):
            raise unknown_group(name)
        return found

    def visible_page(self, read: Callable[..., list[N]], sees: Callable[[N], bool]) -> list[N]:
        """Return a page of named things that the caller may see. `read` lists them by name, from `after` on.

        A page that is short because of things that the caller may not see is filled up.
        """
        wanted = limits.check_integer("limit", self.query.limit, 1, limits.PAGE_MAX)
        after, size = self.query.after, wanted if self.principal.sees_all else limits.PAGE_MAX
        found: list[N] = []
        for _ in range(VISIBLE_READS_MAX):
            page = read(after=after, limit=size)
            found += filter(sees, page)
            if len(page) < size or len(found) >= wanted:
                break
            after = page[-1].name
        return found[:wanted]

    def check_scope(self, queue: str | None) -> None:
        """Raise Forbidden unless the caller may use the queue, or all queues if none is named."""
        if queue is not None:
            self.see_queue(queue)
        elif not self.principal.sees_all:
            allowed = list(self.principal.queues)
            raise Forbidden("this token does not cover all queues", action="Name a queue, if this can be asked.", allowed=allowed)

    def check_search(self, text: str | None) -> None:
        """Raise Forbidden if the caller searches contents of which some are hidden from it: the hits would tell them."""
        if text is not None and self.redaction is not None:
            raise Forbidden("a search by text reads contents, and some are hidden from this caller", field="text")

    def visible_job(self, job_id: int | None = None) -> Job:
        """Return a job that the caller may see. A job of another queue does not exist for it."""
        wanted = self.job_id if job_id is None else job_id
        job = self.ledger.get(wanted)
        if not self.principal.sees(job.queue):
            raise NotFound(f"there is no job {wanted}", job_id=wanted)
        return job

    def check_visible(self) -> int:
        """Return the job id of the path, after a check that the caller may see that job."""
        return self.job_id if self.principal.sees_all else self.visible_job().id

    # Answers

    def waits(self, jobs: Iterable[JobView]) -> dict[str, WhyNotRunning]:
        """Say of those of these jobs that are queued what keeps them from being claimed, by id."""
        hides_keys = self.redaction is not None and self.redaction.hides_keys
        found = waiting_to(self.ledger, [job.id for job in jobs], sees=self.principal.sees, hides_keys=hides_keys)
        return {str(id_): why for id_, why in found.items()}

    def view(self, job: Job) -> JobView:
        view = job_view(job, raw=True)
        return view if self.redaction is None else self.redaction.fields(view)

    def changed(self, job: Job) -> Reply:
        """Answer a job that was changed, with its new revision."""
        return Reply({"job": self.view(job)}, headers={"ETag": f'"{job.rev}"'})


def claimable_queues(principal: Principal, ledger: Ledger) -> list[str] | None:
    """Return the queues from which a caller claims if it names none. None: all of them."""
    if principal.sees_all:
        return None
    named = [pattern for pattern in principal.queues if ANY not in pattern]
    if len(named) < len(principal.queues):
        named += [queue.name for queue in ledger.queues() if principal.sees(queue.name) and queue.name not in named]
    if not named:
        action = f"Name the queues. This token covers {', '.join(principal.queues)}."
        raise ValidationError("this token covers no queue that has jobs", action=action, field="queues")
    return named[: limits.NAMES_PER_CLAIM_MAX]


def visible_related(principal: Principal, ledger: Ledger, answer: R) -> R:
    """Return an answer about a task without the tasks of hidden queues that it waits for or that wait for it."""
    if principal.sees_all:
        return answer
    origins = ledger.outbox.origins([one.id for one in (*answer.blocked_by, *answer.unlocks)])
    shown = {id_ for id_, origin in origins.items() if principal.sees(origin.queue)}
    blocked_by, unlocks = ([one for one in found if one.id in shown] for found in (answer.blocked_by, answer.unlocks))
    return msgspec.structs.replace(answer, blocked_by=blocked_by, unlocks=unlocks)


class FenceGiven(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """The fence of a claim's answer, sent back as it came. The path or `job_id` names the job."""

    attempt: int
    token: str
    job_id: int | None = None
    worker: str | None = None
    incarnation: str | None = None


class ProofGiven(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The holder's signature of a command, if the policy of its attempt wants one."""

    key_id: str
    signature: str
    """In base64, over the prefix of statements and `statement`."""
    statement: str
    """The exact text that was signed, in Holdfast's form."""
