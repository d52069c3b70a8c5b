"""One command's place in its call, and what is noted there of what it did."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from holdfast.core.lifecycle import Outcome
from holdfast.core.model import Job, Phase, Status
from holdfast.ledger.door import Call
from holdfast.ledger.notary import Sitting
from holdfast.store.base import Change, Session


class Item(NamedTuple):
    """One command's place in its call."""

    call: Call
    place: int
    command: Any

    def answer(self, value: Any) -> None:
        self.call.answers[self.place] = value


Runner = Callable[[Session, Sequence[Item], Sitting], None]
"""Answers all commands of one kind in a round."""


def note_told(call: Call, outcomes: Iterable[Outcome]) -> None:
    """What was decided about jobs that nobody named."""
    for outcome in outcomes:
        call.outcomes.append(outcome)
        if outcome.job.status is Status.QUEUED:
            call.wakes.add(outcome.job.queue)


def change_of(job: Job) -> Change:
    return Change(job.id, job.rev, job.status, job.updated_at, job.lease_expires_at, job.phase is Phase.ABORTING)
