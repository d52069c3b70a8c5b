"""The answer to an append: the event that came of it, whether this time or when it was sent before."""

from collections.abc import Iterable
from typing import Any

from holdfast.core.model import Event, Role
from holdfast.core.proof.signed import counter_of
from holdfast.errors import HoldfastError
from holdfast.ledger.requests import Result
from holdfast.store.base import Session


def answer_appends(session: Session, results: Iterable[Result]) -> None:
    """Answer with the last event that came of each; also where it was refused because it is the newest of its signer already."""
    for result in results:
        if result.request.verb == "append":
            [command] = result.request.commands
            found = _made_by(session, command)
            is_refused = isinstance(result.answers[0], HoldfastError)
            if found is not None and (not is_refused or _is_newest(session, found)):
                result.answers[0] = found


def _made_by(session: Session, command: Any) -> Event | None:
    found = session.find_event(command.job_id, command.request_id)
    return found if found is not None and found.statement == command.signed.statement else None


def _is_newest(session: Session, event: Event) -> bool:
    """Whether nothing was signed for this attempt since, or nothing at all happened where it is the system's."""
    job = session.load([event.job_id], lock=False)[event.job_id]
    if event.actor.role is not Role.WORKER or event.statement is None:
        return event.rev == job.rev
    return event.attempt == job.attempt and counter_of(event.statement) == job.counter
