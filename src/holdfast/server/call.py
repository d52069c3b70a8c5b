"""One request on its way to the ledger: who calls, what was sent, and what the handler answers."""

from typing import Any, NamedTuple

import msgspec

from holdfast.core import limits
from holdfast.core.model import Actor, Fence, Role
from holdfast.errors import Forbidden, NotFound, ValidationError
from holdfast.ledger import Job, Ledger
from holdfast.server.principal import Principal
from holdfast.server.redact import Redaction
from holdfast.shapes import JobView, job_view

JSON_TYPE = "application/json"


class Reply(NamedTuple):
    """An answer with another status than the route's own, or with headers."""

    body: Any
    status: int | None = None
    headers: dict[str, str] = {}  # noqa: RUF012 - never changed


class Call:
    """What a handler gets. Its attributes are checked; the ledger checks the values."""

    __slots__ = (
        "_actor",
        "body",
        "exchange",
        "expected_rev",
        "incarnation",
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

    def fence(self, given: "FenceGiven", job_id: int | None = None) -> Fence:
        """Return the fence that the caller sent, which has to be one of its own."""
        worker = self.worker
        if job_id is not None and given.job_id not in (None, job_id):
            raise ValidationError(f"the fence is of job {given.job_id}, not of job {job_id}", field="fence")
        found = job_id if given.job_id is None else given.job_id
        if found is None:
            raise ValidationError("the fence has no job_id", field="fence")
        if given.worker not in (None, worker.name) or given.incarnation not in (None, worker.incarnation):
            raise Forbidden(f"this fence was not issued to {worker.name}#{worker.incarnation}", holder=given.worker)
        return Fence(found, given.attempt, given.token, worker.name, worker.incarnation)

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

    def view(self, job: Job) -> JobView:
        view = job_view(job, raw=True)
        return view if self.redaction is None else self.redaction.job(view)

    def changed(self, job: Job) -> Reply:
        """Answer a job that was changed, with its new revision."""
        return Reply({"job": self.view(job)}, headers={"ETag": f'"{job.rev}"'})


class FenceGiven(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The fence of a claim's answer, sent back as it came. The path or `job_id` names the job."""

    attempt: int
    token: str
    job_id: int | None = None
    worker: str | None = None
    incarnation: str | None = None
