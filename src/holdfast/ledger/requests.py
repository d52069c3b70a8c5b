"""A request to the commit pipeline, and the result of one run of it."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from holdfast.core.commands import Command, Heartbeat
from holdfast.core.decide import Decision
from holdfast.core.model import JobRecord, Phase, Status
from holdfast.ledger.signing import TransactionSigner
from holdfast.store.base import AppliedCommand, Session


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
    """What one run of a request did. Each run makes a new result, so that a run that is rolled back leaves nothing behind."""

    __slots__ = ("answers", "changed", "locked", "outcomes", "queues", "request")

    def __init__(self, request: Request) -> None:
        self.request = request
        self.answers: list[Any] = [None] * len(request.commands)
        """One for each command: a value, or an error."""
        self.changed = False
        """Something was written."""
        self.locked = False
        """Some commands were not run, because another transaction has locked a row that they need."""
        self.outcomes: list[Decision] = []
        """What was written for commands that were decided one by one."""
        self.queues: set[str] = set()
        """Queues that have new work, now or later. Idle workers there are woken."""

    def note(self, outcomes: Iterable[Decision]) -> None:
        """Add what was decided about jobs that no command named."""
        for outcome in outcomes:
            self.outcomes.append(outcome)
            if outcome.job.status is Status.QUEUED:
                self.queues.add(outcome.job.queue)


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
