"""A job on its way through one command, and what a command has to be true before it does anything."""

import msgspec

from holdfast.core import commands as c
from holdfast.core.evolve import evolve
from holdfast.core.model import TERMINAL, Actor, Event, EventType, Job, Micros, Policy, Role, Status
from holdfast.core.proof.signed import Signed
from holdfast.core.signing import attach, missing, owes, speaks_of
from holdfast.core.table import sources
from holdfast.errors import Forbidden, InvalidTransition


class Outcome(msgspec.Struct, frozen=True):
    """The job afterwards and the events that led there; no events where there was nothing left to do."""

    job: Job
    events: tuple[Event, ...]


class Draft:
    """A job on its way through one command."""

    def __init__(self, job: Job, now: Micros, command: c.JobCommand) -> None:
        self.job = job
        self.now = now
        self.at = max(now, job.updated_at)
        """Times of one job never run backwards, whatever the clock does."""
        self.command = command
        self.signed: Signed | None = getattr(command, "signed", None)
        self.events: list[Event] = []

    def emit(
        self,
        kind: EventType,
        to: Status | None = None,
        *,
        actor: Actor | None = None,
        reason: str | None = None,
        payload: bytes | None = None,
        policy: Policy | None = None,
    ) -> None:
        event = Event(
            job_id=self.job.id,
            rev=self.job.rev + 1,
            type=kind,
            received_at=self.at,
            actor=actor or self.command.actor,
            attempt=self.job.attempt + (kind is EventType.CLAIMED),
            from_status=self.job.status,
            to_status=to or self.job.status,
            reason=reason,
            request_id=self.command.request_id,
            cause=self.command.cause,
            payload=payload,
            policy=policy,
            correlation_id=self.job.correlation_id,
            trace_id=self.job.trace_id,
        )
        event = self._vouched(event)
        self.events.append(event)
        self.job = evolve(self.job, event)

    def at_of(self, actor: Actor) -> Micros:
        """The `at` of an event by `actor`: the time it signed, or the ledger's time."""
        return self.signed.said.at if self.signed is not None and self.signed.said.actor == actor else self.at

    def _vouched(self, event: Event) -> Event:
        """With what its holder signed. What others have to sign is signed by the ledger once it is decided."""
        if self.signed is not None and speaks_of(self.signed, event):
            return attach(self.job, event, self.signed)
        if event.actor.role is Role.WORKER and owes(self.job.policy, event.type):
            raise missing(self.job, event.type)
        return event

    def outcome(self) -> Outcome:
        return Outcome(self.job, tuple(self.events))


def check_role(verb: str, actor: Actor, allowed: frozenset[Role]) -> None:
    if actor.role not in allowed:
        raise Forbidden(f"{verb} is not for a {actor.role.value}", verb=verb, allowed=sorted(allowed))


def require(verb: str, job: Job) -> None:
    if job.status not in sources(verb):
        raise not_from(verb, job)


def not_from(verb: str, job: Job) -> InvalidTransition:
    """The refusal of a verb that the job's status does not allow."""
    refused = InvalidTransition(f"{verb}: job {job.id} is {job.status.value}", verb=verb, **job.held_by)
    refused.action = _advice(verb, job)
    return refused


def _advice(verb: str, job: Job) -> str:
    """What to do instead, which depends on the status."""
    if job.status is Status.SUCCEEDED and verb == "replay":
        return (
            "Replay starts jobs over that have failed, were cancelled or were dead-lettered. "
            "To do the work of a succeeded job again, enqueue a new job."
        )
    if job.status is Status.SUCCEEDED:
        return f"The job has ended and cannot be changed. To see its result: holdfast job get {job.id}"
    if job.status in TERMINAL:
        return f"The job has ended and cannot be changed. To start it over as a new job: holdfast job replay {job.id}"
    if verb == "replay":
        return f"Replay is for jobs that have ended, and this one has not. To see what happens next: holdfast explain {job.id}"
    allowed = " or ".join(status.value for status in Status if status in sources(verb))
    return f"A job must be {allowed} for this. To see what happens next: holdfast explain {job.id}"
